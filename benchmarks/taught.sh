#!/usr/bin/env bash
# The shipped model goes on with texts of a teacher, on one GPU.
#
#   python benchmarks/shipped.py STORIES --texts data/stories
#   benchmarks/taught.sh data/stories HOME          # HOME/student is the result: shipped.py --run
#
# A large autoregressive model learns the texts, writes many more like them, with a narrow nucleus,
# and the shipped model learns from both. Variables change the amounts: see below.
set -euo pipefail
cd "$(dirname "$0")/.."
texts=$1 home=$2
: "${DEVICE:=cuda}" "${PRECISION:=bf16}" "${PRESET:=small}"
: "${TEACHER_STEPS:=2000}" "${COUNT:=20000}" "${TOP_P:=0.65}" "${BATCH:=512}" "${STEPS:=40000}"
tokenizer=src/didlm/models/stories
common=(--valid "$texts/valid/tinystories.jsonl" --set "device=$DEVICE" --set "precision=$PRECISION" --set samples=0)

python -m didlm train --method ar --preset "$PRESET" --data "$texts/train" --set "tokenizer=$tokenizer" \
    "${common[@]}" --steps "$TEACHER_STEPS" --set batch=64 --set optimiser=muon --set learning_rate=2e-3 \
    --set schedule=wsd --set decay=0.5 --set dropout=0.2 --set average=0.999 --set warmup=50 \
    --set validate_every=$((TEACHER_STEPS / 8 + 1)) --out "$home/teacher"
python benchmarks/teacher.py "$home/teacher" "$texts/train/tinystories.jsonl" "$home/taught.jsonl" \
    --count "$COUNT" --top-p "$TOP_P" --batch "$BATCH" --device "$DEVICE"
python -m didlm prepare "$home/taught.jsonl" "$texts/train" --tokenizer "$tokenizer" --held-out 0 --out "$home/store"
python -m didlm train --recipe shipped --init stories --data "$home/store" "${common[@]}" \
    --steps "$STEPS" --set warmup=300 --set decay=0.7 --set validate_every=$((STEPS / 4 + 1)) --out "$home/student"
