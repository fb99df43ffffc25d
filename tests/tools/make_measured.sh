#!/bin/sh
# Writes data/measured.csv from priced runs: what was allocated and reserved against what oomplan predicts would be, in parts.
# A development tool: nothing of the build or the tests runs it.
#
#     oomplan estimate --runs peaks.csv --models-dir runs -o priced.csv && tests/tools/make_measured.sh priced.csv >data/measured.csv
awk -F, 'NR == 1 {
	for (i = 1; i <= NF; i++) at[$i] = i
	print "id,model,pred_states,pred_activations,pred_transient,pred_reserved_native,overall_peak,reserved_native,source"
	next
}
function p(name) { return $at["pred_pk_" name] }
$at["pred_reserved_native"] != "" && $at["reserved_native"] != "" && $at["pred_error"] == "" && $at["pred_warning"] == "" {
	printf "%s,%s,%.0f,%.0f,%.0f,%s,%s,%s,emulated CUDA allocator; torch 2.14 transformers 5.12; 2026-11\n", $at["id"], $at["model"],
	       p("params") + p("buffers") + p("inputs") + p("grads") + p("opt") + p("comm"), p("saved_act") + p("amp_copies") + p("recompute"),
	       p("logits") + p("temp"), $at["pred_reserved_native"], $at["overall_peak"], $at["reserved_native"] }' "$1"
