. /common.sh
# meminfo FIELD: of node 1, in MiB; 0 if the node is offline.
meminfo() {
    while read -r _ _ name kib _; do
        [ "$name" = "$1:" ] && mib=$((kib >> 10))
    done < /sys/devices/system/node/node1/meminfo
    echo "${mib:-0}"
}
# Memory is hotplugged in blocks of 128 MiB, one by one.
online() { [ "$(meminfo MemTotal)" -gt 0 ]; }
fully_online() { [ "$(meminfo MemTotal)" -gt 300 ]; }
# The test answers the lines "add" and "remove" with `memtide lab node`.
plug() { echo "add"; until fully_online; do sleep 0.1; done 2> /dev/null; }
plug
# A long epoch: the policy does not promote pages meanwhile.
configure epoch_ms=600000
start_daemon
start target 32 update
free=$(meminfo MemFree)
start filler1 $((free - 24)) node1
echo "== full"
migrate $target 0 1 10 > /tmp/migrate & request=$!
wait_for_migration $target
start filler2 40 node1
wait $request
while read -r line; do echo "$line"; done < /tmp/migrate
finish $filler1 $filler2
echo "== freed"; migrate $target 0 1; migrate $target 1 0
stop_daemon
# A short epoch: the policy, too, demotes pages to node 1.
configure epoch_ms=500:cold_epochs=1
start_daemon
echo "== unplug"
echo "remove"
while online; do migrate $target 0 1; migrate $target 1 0; done 2> /dev/null
sleep 2
echo "== offline"; migrate $target 0 1; memtide status -o json; sleep 3; memtide status -o json
echo "== online"
plug
migrate $target 0 1; migrate $target 1 0; memtide status -o json
echo "== end"; finish $target
stop_daemon
