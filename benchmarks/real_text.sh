#!/usr/bin/env bash
# The comparison on real text on one H200, in three calls of less than ten minutes each, one after
# the other on the same machine; the prepared data lies in HOME/data (see real_text.py).
#
#   benchmarks/real_text.sh HOME 1    # training
#   benchmarks/real_text.sh HOME 2    # the rest of it, and samples whose seconds count, alone
#   benchmarks/real_text.sh HOME 3    # the rest of these, then all other figures, side by side
#
# A home in memory (/dev/shm) spares the time of writing models. What has a record is not done again.
set -uo pipefail
cd "$(dirname "$0")/.."
home=$1 call=$2 limit=${3:-585} # seconds of a call

step() { # seconds, words
    local left=$(($1 - SECONDS))
    shift
    timeout --signal TERM "$left" python benchmarks/real_text.py --home "$home" "$@" --budget $((left - 15))
}

mkdir -p "$home/logs"
case $call in
1) step "$limit" train ;;
2)
    step "$limit" train && step "$limit" measure --kinds reference samples
    ;;
3)
    step "$limit" measure --kinds reference samples
    export OMP_NUM_THREADS=2 # many processes, few cores
    # Those that take longest have a process of their own.
    while read -r names; do
        # shellcheck disable=SC2086  # they are several words
        step "$limit" measure --kinds likelihood middles variants --only $names \
            </dev/null >"$home/logs/${names// /+}.log" 2>&1 &
    done <<'RUNS'
did-small
did-mini ilm-mini
radd-small
radd-mini did-fixed-dise-small
radd-fixed-small did-fixed-small
ar-small ar-mini ar-chunks-small
RUNS
    wait
    grep -h "left\|failed\|Error" "$home"/logs/*.log
    ;;
esac
