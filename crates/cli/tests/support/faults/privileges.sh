. /begin.sh
# of NAME UID: a process of that user's.
of() {
    setpriv --reuid "$2" --regid "$2" --clear-groups faults "$1" 8 holds & eval "$1=$!"
    until [ -e "/tmp/$1" ]; do sleep 0.1; done
}
# lies PID: where its memory is. While pages are on their way they are not counted.
lies() {
    where=
    until [ "$where" ]; do
        while read -r line; do
            case $line in *anon=2048*N0=2048*) where=0;; *anon=2048*N1=2048*) where=1;; *anon=2048*) where=apart;; esac
        done < "/proc/$1/numa_maps"
    done
    echo "lies $where"
}
# each COMMAND...: has it migrate each of the processes to node 1, and moves what it could back.
each() {
    for pid in $own $others $roots; do
        "$@" memtide migrate "$pid" --from 0 --to 1 --max-rate 100000 $at 2>&1
        echo "code $?"; lies "$pid"
        [ -n "$at" ] || memtide migrate "$pid" --from 1 --to 0 --max-rate 100000 > /tmp/back 2>&1
    done
}
lacking() { caps=$1; shift; setpriv --bounding-set "$caps" --inh-caps "$caps" "$@"; }
of own 1000; of others 1001; begin roots 8 holds
echo "== user"; each setpriv --reuid 1000 --regid 1000 --clear-groups
configure epoch_ms=500:cold_epochs=10000 "socket = '/tmp/user.sock'"
setpriv --reuid 1000 --regid 1000 --clear-groups memtide daemon --config /memtide.toml & daemon=$!
at="--socket /tmp/user.sock"
listens $at
sleep 4
echo "== user daemon"; memtide status $at -o json; each
stop
at=
echo "== nice"; each lacking -sys_nice
echo "== ptrace"; each lacking -sys_nice,-sys_ptrace
configure epoch_ms=500:cold_epochs=1
for caps in -sys_nice -sys_nice,-sys_ptrace; do
    setpriv --bounding-set $caps --inh-caps $caps memtide daemon --config /memtide.toml & daemon=$!
    listens
    sleep 4
    echo "== daemon"; memtide status -o json; stop
done
echo "== end"; end $own $others $roots
