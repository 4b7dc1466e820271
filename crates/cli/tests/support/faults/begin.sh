# What the scripts beside this one share. faults is the program of ../faults.c.
chmod 1777 /tmp
echo 0 > /proc/sys/kernel/numa_balancing

# begin NAME MIB WHAT: runs faults; its number is then in $NAME.
begin() {
    faults "$@" & eval "$1=$!"
    until [ -e "/tmp/$1" ]; do sleep 0.1; done
}

# end PID...: has faults tell whether every byte was right.
end() {
    for pid; do kill -TERM "$pid"; wait "$pid" || echo "faults ended with $?"; done
}

# go PID FROM TO [MB/s]
go() {
    memtide migrate "$1" --from "$2" --to "$3" --max-rate "${4:-100000}" -o json 2>&1
    echo "code $?"
}

# under_way PID: waits until some of its memory has come to node 1.
under_way() {
    until [ "$under_way" = "$1" ]; do
        sleep 0.1
        while read -r line; do case $line in *N1=*) under_way=$1;; esac; done < "/proc/$1/numa_maps"
    done
}

# anonymous_memory PID: its lines of numa_maps
anonymous_memory() {
    while read -r line; do case $line in *anon=*) echo "anonymous: $line";; esac; done < "/proc/$1/numa_maps"
}

# daemon [COMMAND...]: the daemon of /memtide.toml, under a command.
daemon() {
    "$@" memtide daemon --config /memtide.toml & daemon=$!
    listens
}

listens() {
    until memtide status "$@" > /tmp/status 2>&1; do sleep 0.1; done
}

stop() {
    kill "$daemon"; wait "$daemon"
    echo "the daemon ended with $?"
}

# configure POLICY-PARAMETERS [LINE...]
configure() {
    echo "policy = 'hot-cold:$1'"
    shift
    printf '%s\n' "least_mib = 1" "max_rate_mbps = 100000" "cooldown_s = 0" "$@"
} > /memtide.toml
