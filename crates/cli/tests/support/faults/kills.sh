. /begin.sh
configure epoch_ms=300:sampling_us=10000:cold_epochs=1
begin writer 8 writes; begin still 8 holds
sleep 3
for after; do
    memtide daemon --config /memtide.toml 2> /tmp/log & daemon=$!
    (sleep 0.3; go $still 0 1 10; go $still 1 0) > /tmp/moved & move=$!
    sleep "$after"
    kill -KILL $daemon; wait $daemon
    wait $move
    for file in /proc/[0-9]*/stat; do
        read -r stat < "$file" && case $stat in *") T "*|*") t "*) echo "stopped: $stat";; esac
    done 2> /tmp/gone
done
echo "== next"; daemon; sleep 3; memtide status -o json; stop
read -r many < /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; echo "kdamonds $many"
kdamonds=/sys/kernel/mm/damon/admin/kdamonds
echo "== taken"; daemon; sleep 3
kill -STOP $daemon
# Until then it may be inside a write to DAMON's files, which refuse a second writer.
until read -r stat < /proc/$daemon/stat && case $stat in *") T "*) ;; *) false;; esac; do sleep 0.1; done
echo "off" > $kdamonds/0/state
echo 1 > $kdamonds/nr_kdamonds; echo 1 > $kdamonds/0/contexts/nr_contexts
echo vaddr > $kdamonds/0/contexts/0/operations
echo 1 > $kdamonds/0/contexts/0/targets/nr_targets; echo $still > $kdamonds/0/contexts/0/targets/0/pid_target
echo on > $kdamonds/0/state
kill -CONT $daemon; sleep 4; memtide status -o json; stop
read -r state < $kdamonds/0/state; echo "the other one is $state"
echo off > $kdamonds/0/state
weight() { read -r weight < /sys/kernel/mm/mempolicy/weighted_interleave/node0; echo "weight $weight"; }
echo "== weights"
memtide run -p ratio:weights=4:1 -- faults weights 8 holds & run=$!
until [ -e /tmp/weights ]; do sleep 0.1; done
weight; kill -KILL $run; wait $run
memtide run -p local -- sh -c true; weight
memtide run -p ratio:weights=3:1 -- sh -c true; weight
echo "== target"
begin target 8 holds
go $target 0 1 5 > /tmp/moved & move=$!
sleep 0.5; kill -KILL $target; wait $move
while read -r line; do echo "$line"; done < /tmp/moved
echo "== end"; end $writer $still
