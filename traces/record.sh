#!/bin/sh
# Record the bundled traces. Installs nothing. MEMTIDE: the command to use (default: memtide).
# Usage: traces/record.sh [orders|sqlite|redis|sort]...
set -eu
memtide=${MEMTIDE:-memtide}
here=$(cd "$(dirname "$0")" && pwd)

# need COMMAND PACKAGE
need() {
    command -v "$1" > /dev/null || { echo "$0: $1 is missing: sudo apt-get install $2" >&2; exit 1; }
}

orders() {
    need sqlite3 sqlite3
    sqlite3 orders.db < orders.sql
    "$memtide" record -o "$here/orders.parquet" --limit 32000000 -- sqlite3 orders.db ".read visits.sql"
}

sqlite() {
    need sqlite3 sqlite3
    "$memtide" record -o "$here/sqlite3.parquet" --skip 1600000000 --limit 8000000 -- \
        sqlite3 :memory: ".read shop.sql"
}

redis() {
    need redis-server redis-server
    need redis-benchmark redis-tools
    "$memtide" record -o "$here/redis.parquet" --skip 640000000 --limit 8000000 -- \
        redis-server --port 7399 --save "" --appendonly no --logfile redis.log &
    until redis-cli -p 7399 ping 2> /dev/null | grep -q PONG; do sleep 0.2; done
    redis-benchmark -p 7399 -q -t set -r 100000 -n 300000 -d 200 -P 16 > /dev/null
    redis-benchmark -p 7399 -q -t get,set -r 100000 -n 20000 -d 200 -c 20 > /dev/null
    redis-cli -p 7399 shutdown nosave
    wait
}

sort_lines() {
    need sort coreutils
    awk 'BEGIN { srand(1); for (i = 0; i < 400000; i++)
        printf "%08x%08x line %d of a text\n", rand() * 4294967296, rand() * 4294967296, i }' > lines.txt
    LC_ALL=C "$memtide" record -o "$here/sort.parquet" --skip 300000000 --limit 8000000 -- \
        sort --parallel=1 -S 200M lines.txt > /dev/null
}

need qemu-x86_64 qemu-user
command -v "$memtide" > /dev/null || { echo "$0: $memtide is missing: cargo build --release" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$here"/*.sql "$scratch"
cd "$scratch"
[ $# -gt 0 ] || set -- orders sqlite redis sort
for trace in "$@"; do
    case $trace in
        orders) orders ;;
        sqlite) sqlite ;;
        redis) redis ;;
        sort) sort_lines ;;
        *) echo "$0: unknown trace $trace: expected orders, sqlite, redis or sort" >&2; exit 2 ;;
    esac
done
