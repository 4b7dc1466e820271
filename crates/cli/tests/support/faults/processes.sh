. /common.sh
configure epoch_ms=2000 "watch.name = 'faults'"
start_daemon
start parent 1 processes 200
sleep 16
for sample in 1 2; do
    read -r before _ < /proc/$daemon/schedstat
    memtide status -o json > /tmp/status
    read -r after _ < /proc/$daemon/schedstat
    echo "== sample"; echo "request_ns $((after - before))"
    while read -r line; do echo "$line"; done < /tmp/status
    while read -r word kib _; do [ "$word" = VmHWM: ] && echo "peak_kib $kib"; done < /proc/$daemon/status
    read -r ns _ < /proc/$daemon/schedstat; echo "cpu_ns $ns"
    sleep 6
done
echo "== end"; finish $parent
sleep 3
echo "== after"; memtide status -o json
stop_daemon
