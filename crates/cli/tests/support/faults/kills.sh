. /common.sh
configure epoch_ms=300:sampling_us=10000:cold_epochs=1
start writer 8 threads; start migrated 8 update
sleep 3
for delay_s; do
    memtide daemon --config /memtide.toml 2> /tmp/log & daemon=$!
    (sleep 0.3; migrate $migrated 0 1 10; migrate $migrated 1 0) > /tmp/migrate & request=$!
    sleep "$delay_s"
    kill -KILL $daemon; wait $daemon
    wait $request
    for file in /proc/[0-9]*/stat; do
        read -r stat < "$file" && case $stat in *") T "*|*") t "*) echo "stopped: $stat";; esac
    done 2> /tmp/exited
done
echo "== restart"
while read -r line; do echo "record: $line"; done < /run/memtide/damon
read -r thread < /sys/kernel/mm/damon/admin/kdamonds/0/pid; echo "thread: $thread"
start_daemon; sleep 3; memtide status -o json; stop_daemon
kdamonds=/sys/kernel/mm/damon/admin/kdamonds
read -r nr_kdamonds < $kdamonds/nr_kdamonds; echo "nr_kdamonds $nr_kdamonds"
echo "== damon in use"; start_daemon; sleep 3
kill -STOP $daemon
# Before it has stopped, it may be inside a write to DAMON's files, which then refuse other writers.
until read -r stat < /proc/$daemon/stat && case $stat in *") T "*) ;; *) false;; esac; do sleep 0.1; done
echo "off" > $kdamonds/0/state
echo 1 > $kdamonds/nr_kdamonds; echo 1 > $kdamonds/0/contexts/nr_contexts
echo vaddr > $kdamonds/0/contexts/0/operations
echo 1 > $kdamonds/0/contexts/0/targets/nr_targets
echo $migrated > $kdamonds/0/contexts/0/targets/0/pid_target
echo on > $kdamonds/0/state
kill -CONT $daemon; sleep 4; memtide status -o json; stop_daemon
read -r state < $kdamonds/0/state; echo "other kdamond: $state"
echo off > $kdamonds/0/state
print_weight() {
    read -r weight < /sys/kernel/mm/mempolicy/weighted_interleave/node0; echo "weight $weight"
}
echo "== weights"
memtide run -p ratio:weights=4:1 -- faults weights 8 update & run=$!
until [ -e /tmp/weights ]; do sleep 0.1; done
print_weight; kill -KILL $run; wait $run
memtide run -p local -- sh -c true; print_weight
memtide run -p ratio:weights=3:1 -- sh -c true; print_weight
echo "== target killed"
start target 8 update
migrate $target 0 1 5 > /tmp/migrate & request=$!
sleep 0.5; kill -KILL $target; wait $request
while read -r line; do echo "$line"; done < /tmp/migrate
echo "== end"; finish $writer $migrated
