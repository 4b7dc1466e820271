. /begin.sh
begin writer 8 writes
for round in 1 2 3; do echo "== alone"; go $writer 0 1; echo "== alone"; go $writer 1 0; done
# With a CPU of its own the second node is not slower to the kernel.
configure epoch_ms=1000:sampling_us=50000 "machine = 'hinuma'"
daemon
sleep 3
for round in 1 2 3; do echo "== asked"; go $writer 0 1; sleep 3; done
echo "== status"; memtide status -o json
echo "== end"; end $writer
stop
