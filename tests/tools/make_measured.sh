#!/bin/sh
# Writes data/measured.csv from priced runs: what was reserved against what oomplan predicts would be.
# A development tool: nothing of the build or the tests runs it.
#
#     oomplan estimate --runs peaks.csv --models-dir runs -o priced.csv && tests/tools/make_measured.sh priced.csv >data/measured.csv
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; print "id,model,predicted,measured,source"; next }
$at["pred_reserved_native"] != "" && $at["reserved_native"] != "" && $at["pred_error"] == "" && $at["pred_warning"] == "" {
	printf "%s,%s,%s,%s,emulated CUDA allocator; torch 2.14 transformers 5.12; 2026-11\n", $at["id"], $at["model"],
	       $at["pred_reserved_native"], $at["reserved_native"] }' "$1"
