# Shared by the scripts of this folder, which run in a guest. `faults` is ../faults.c.
chmod 1777 /tmp
echo 0 > /proc/sys/kernel/numa_balancing

# start NAME MIB MODE [PROCESSES]: starts faults and waits until it is ready; sets $NAME to its PID.
start() {
    faults "$@" & eval "$1=$!"
    until [ -e "/tmp/$1" ]; do sleep 0.1; done
}

# finish PID...: ends instances of faults, which print PASS or FAIL.
finish() {
    for pid; do kill -TERM "$pid"; wait "$pid" || echo "faults: exit status $?"; done
}

# migrate PID FROM TO [MB/s]
migrate() {
    memtide migrate "$1" --from "$2" --to "$3" --max-rate "${4:-100000}" -o json 2>&1
    echo "exit status $?"
}

# wait_for_migration PID: until some of its pages are on node 1.
wait_for_migration() {
    until [ "$migrating" = "$1" ]; do
        sleep 0.1
        while read -r line; do case $line in *N1=*) migrating=$1;; esac; done < "/proc/$1/numa_maps"
    done
}

# print_anonymous_memory PID: its lines of numa_maps
print_anonymous_memory() {
    while read -r line; do case $line in *anon=*) echo "anonymous: $line";; esac; done < "/proc/$1/numa_maps"
}

# start_daemon: starts the daemon with the configuration /memtide.toml; sets $daemon to its PID.
start_daemon() {
    memtide daemon --config /memtide.toml & daemon=$!
    wait_for_daemon
}

# wait_for_daemon [--socket PATH]
wait_for_daemon() {
    until memtide status "$@" > /tmp/status 2>&1; do sleep 0.1; done
}

stop_daemon() {
    kill "$daemon"; wait "$daemon"
    echo "daemon: exit status $?"
}

# configure PARAMETERS [LINE...]: writes a configuration with hot-cold and these lines.
configure() {
    echo "policy = 'hot-cold:$1'"
    shift
    printf '%s\n' "least_mib = 1" "max_rate_mbps = 100000" "cooldown_s = 0" "$@"
} > /memtide.toml
