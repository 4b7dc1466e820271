. /common.sh
groups=/sys/fs/cgroup
mount -t cgroup2 none $groups
mkdir $groups/batch $groups/batch/one
start outside 32 update
(echo 0 > $groups/batch/one/cgroup.procs; exec faults inside 32 update) & inside=$!
until [ -e /tmp/inside ]; do sleep 0.1; done
# wait_until_watched PID: until the daemon lists the process.
wait_until_watched() {
    until case "$(memtide status -o json)" in *"\"pid\": $1,"*) ;; *) false;; esac; do sleep 0.1; done
}
configure epoch_ms=500 "watch.cgroup = '/batch'"
start_daemon
wait_until_watched $inside
echo "== inside"; echo "pid $inside"; memtide status -o json
configure epoch_ms=500 "watch.not.cgroup = '/batch'"
kill -HUP $daemon
wait_until_watched $outside
echo "== outside"; echo "pid $outside"; memtide status -o json
echo "== end"; finish $inside $outside
stop_daemon
