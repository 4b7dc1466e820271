. /begin.sh
# meminfo FIGURE: of node 1, in MiB.
meminfo() {
    while read -r _ _ name kib _; do [ "$name" = "$1:" ] && mib=$((kib >> 10)); done < /sys/devices/system/node/node1/meminfo
    echo "${mib:-0}"
}
# Blocks of 128 MiB come and go one by one.
there() { [ "$(meminfo MemTotal)" -gt 0 ]; }
whole() { [ "$(meminfo MemTotal)" -gt 300 ]; }
plugged() { echo "add"; until whole; do sleep 0.1; done 2> /dev/null; }
plugged
# The policy, which would fetch back what is used, stays out of it.
configure epoch_ms=600000
daemon
begin target 32 holds
free=$(meminfo MemFree)
begin most $((free - 24)) node1
echo "== fills"
go $target 0 1 10 > /tmp/filled & move=$!
under_way $target
begin rest 40 node1
wait $move
while read -r line; do echo "$line"; done < /tmp/filled
end $most $rest
echo "== room"; go $target 0 1; go $target 1 0
stop
# Now the policy, too, wants pages to go there.
configure epoch_ms=500:cold_epochs=1
daemon
echo "== goes"
echo "remove"
while there; do go $target 0 1; go $target 1 0; done 2> /dev/null
sleep 2
echo "== gone"; go $target 0 1; memtide status -o json; sleep 3; memtide status -o json
echo "== back"
plugged
go $target 0 1; go $target 1 0; memtide status -o json
echo "== end"; end $target
stop
