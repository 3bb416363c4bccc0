#!/bin/sh
# Prints the folder that tests write to: in memory where there is room, since their thousands of fsyncs take half of a run.
# The tests themselves need as much again.
set -eu
free_kb=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
available_kb=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null || true)
if [ "${free_kb:-0}" -gt 8388608 ] && [ "${available_kb:-0}" -gt 12582912 ] && [ -w /dev/shm ]; then
    echo /dev/shm
else
    echo "${TMPDIR:-/tmp}"
fi
