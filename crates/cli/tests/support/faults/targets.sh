. /common.sh
configure epoch_ms=500:sampling_us=10000:cold_epochs=10000
start exec 4 exec; start fork 4 fork; start unmap 4 unmap; start mlock 4 mlock; start pin 4 pin
start killed 8 update
sleep 3
start_daemon
# during_migration PID SIGNAL: starts a slow migration and sends the signal in the middle of it.
during_migration() {
    migrate "$1" 0 1 2 > /tmp/migrate & request=$!
    wait_for_migration "$1"
    sleep 0.5
    kill "$2" "$1"
    wait $request
    while read -r line; do echo "$line"; done < /tmp/migrate
}
echo "== exec"; during_migration $exec -USR1
until [ -e /tmp/after_exec ]; do sleep 0.1; done
echo "== fork"; during_migration $fork -USR1
migrate $fork 0 1; migrate $fork 1 0
echo "== unmap"; migrate $unmap 0 1; migrate $unmap 1 0
echo "== mlock"; migrate $mlock 0 1; migrate $mlock 1 0; print_anonymous_memory $mlock
echo "== pin"; migrate $pin 0 1; migrate $pin 1 0
echo "== killed"; during_migration $killed -KILL
echo "== status"; memtide status -o json
echo "== end"; finish $exec $fork $unmap $mlock $pin
sleep 1
echo "== after"; memtide status -o json
stop_daemon
