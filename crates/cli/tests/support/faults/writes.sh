. /common.sh
start writer 8 threads
for round in 1 2 3; do
    echo "== without daemon"; migrate $writer 0 1
    echo "== without daemon"; migrate $writer 1 0
done
# The second node has a CPU and so is in the same tier to the kernel: the machine file ranks it below.
configure epoch_ms=1000:sampling_us=50000 "machine = 'hinuma'"
start_daemon
sleep 3
for round in 1 2 3; do echo "== by daemon"; migrate $writer 0 1; sleep 3; done
echo "== status"; memtide status -o json
echo "== end"; finish $writer
stop_daemon
