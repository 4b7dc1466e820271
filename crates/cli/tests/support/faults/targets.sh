. /begin.sh
configure epoch_ms=500:sampling_us=10000:cold_epochs=10000
begin execs 4 execs; begin forks 4 forks; begin unmaps 4 unmaps; begin locks 4 locks; begin pins 4 pins; begin leaves 8 holds
sleep 3
daemon
# Asks for a slow migration and has something done in the middle of it.
amid() {
    go "$1" 0 1 2 > /tmp/amid & move=$!
    under_way "$1"
    sleep 0.5
    kill "$2" "$1"
    wait $move
    while read -r line; do echo "$line"; done < /tmp/amid
}
echo "== execs"; amid $execs -USR1
until [ -e /tmp/anew ]; do sleep 0.1; done
echo "== forks"; amid $forks -USR1
go $forks 0 1; go $forks 1 0
echo "== unmaps"; go $unmaps 0 1; go $unmaps 1 0
echo "== locks"; go $locks 0 1; go $locks 1 0; anonymous_memory $locks
echo "== pins"; go $pins 0 1; go $pins 1 0
echo "== leaves"; amid $leaves -KILL
echo "== status"; memtide status -o json
echo "== end"; end $execs $forks $unmaps $locks $pins
sleep 1
echo "== alone"; memtide status -o json
stop
