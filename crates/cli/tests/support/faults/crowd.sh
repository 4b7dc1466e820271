. /begin.sh
configure epoch_ms=2000 "watch.name = 'faults'"
daemon
begin crowd 1 crowd 200
sleep 16
for look in 1 2; do
    read -r before _ < /proc/$daemon/schedstat
    memtide status -o json > /tmp/told
    read -r after _ < /proc/$daemon/schedstat
    echo "== look"; echo "meanwhile $((after - before))"
    while read -r line; do echo "$line"; done < /tmp/told
    while read -r word kib _; do [ "$word" = VmHWM: ] && echo "KiB $kib"; done < /proc/$daemon/status
    read -r ns _ < /proc/$daemon/schedstat; echo "ns $ns"
    sleep 6
done
echo "== end"; end $crowd
sleep 3
echo "== after"; memtide status -o json
stop
