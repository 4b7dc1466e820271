. /begin.sh
groups=/sys/fs/cgroup
mount -t cgroup2 none $groups
mkdir $groups/batch $groups/batch/one
begin outside 32 holds
(echo 0 > $groups/batch/one/cgroup.procs; exec faults inside 32 holds) & inside=$!
until [ -e /tmp/inside ]; do sleep 0.1; done
# watches PID: waits until the daemon has it among what it watches.
watches() {
    until case "$(memtide status -o json)" in *"\"pid\": $1,"*) ;; *) false;; esac; do sleep 0.1; done
}
configure epoch_ms=500 "watch.cgroup = '/batch'"
daemon
watches $inside
echo "== inside"; echo "its $inside"; memtide status -o json
configure epoch_ms=500 "watch.not.cgroup = '/batch'"
kill -HUP $daemon
watches $outside
echo "== outside"; echo "its $outside"; memtide status -o json
echo "== end"; end $inside $outside
stop
