. /common.sh
# start_as NAME UID: starts faults as a user; sets $NAME to its PID.
start_as() {
    setpriv --reuid "$2" --regid "$2" --clear-groups faults "$1" 8 update & eval "$1=$!"
    until [ -e "/tmp/$1" ]; do sleep 0.1; done
}
# print_node PID: the node of its memory, or "split"; numa_maps omits pages in migration, so it retries.
print_node() {
    node=
    until [ "$node" ]; do
        while read -r line; do
            case $line in
                *anon=2048*N0=2048*) node=0;;
                *anon=2048*N1=2048*) node=1;;
                *anon=2048*) node=split;;
            esac
        done < "/proc/$1/numa_maps"
    done
    echo "memory on node $node"
}
# migrate_each COMMAND...: migrates each process to node 1, under COMMAND. Without a daemon, root then migrates
# it back.
migrate_each() {
    for pid in $own $others $roots; do
        "$@" memtide migrate "$pid" --from 0 --to 1 --max-rate 100000 $socket 2>&1
        echo "exit status $?"; print_node "$pid"
        [ -n "$socket" ] || memtide migrate "$pid" --from 1 --to 0 --max-rate 100000 > /tmp/migrate 2>&1
    done
}
# change_capabilities CAPABILITIES COMMAND...
change_capabilities() { caps=$1; shift; setpriv --bounding-set "$caps" --inh-caps "$caps" "$@"; }
start_as own 1000; start_as others 1001; start roots 8 update
echo "== user"; migrate_each setpriv --reuid 1000 --regid 1000 --clear-groups
configure epoch_ms=500:cold_epochs=10000 "socket = '/tmp/user.sock'"
setpriv --reuid 1000 --regid 1000 --clear-groups memtide daemon --config /memtide.toml & daemon=$!
socket="--socket /tmp/user.sock"
wait_for_daemon $socket
sleep 4
echo "== user daemon"; memtide status $socket -o json; migrate_each
stop_daemon
socket=
echo "== without sys_nice"; migrate_each change_capabilities -sys_nice
echo "== without sys_ptrace"; migrate_each change_capabilities -sys_nice,-sys_ptrace
configure epoch_ms=500:cold_epochs=1
for caps in -sys_nice -sys_nice,-sys_ptrace; do
    setpriv --bounding-set $caps --inh-caps $caps memtide daemon --config /memtide.toml & daemon=$!
    wait_for_daemon
    sleep 4
    echo "== daemon"; memtide status -o json; stop_daemon
done
echo "== end"; finish $own $others $roots
