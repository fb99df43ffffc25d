/* The results a sweep can print, once. */
#ifndef OOM_SWEEP_RESULTS_H
#define OOM_SWEEP_RESULTS_H

#define OOM_SWEEP_RESULTS(X) \
	X(FITS, "fits") X(USED, "used_bytes") X(ESTIMATED, "used_bytes_estimated") X(CAPACITY, "capacity_bytes") X(HEADROOM, "headroom_bytes") \
	X(PEAK, "overall_peak_bytes") X(PHASE, "peak_phase") X(RESERVED, "reserved_bytes") X(PARAMS, "total_params") \
	X(TRAINABLE, "trainable_params") X(LOAD, "after_load_bytes") X(FWD1, "fwd1_peak_bytes") X(BWD1, "bwd1_peak_bytes") \
	X(OPT1, "opt1_peak_bytes") X(FWD2, "fwd2_peak_bytes") X(BWD2, "bwd2_peak_bytes") X(OPT2, "opt2_peak_bytes") \
	X(EVAL, "eval_fwd_peak_bytes") X(FLOOR, "floor_bytes") X(SECONDS, "seconds_per_sample") X(CLASS, "class") \
	X(DEPARTURES, "departures") X(CHANGES, "changes") X(ERROR, "error") \
	X(LOW, "seconds_low") X(HIGH, "seconds_high") X(MFU, "mfu") X(MFU_LOW, "mfu_low") X(MFU_HIGH, "mfu_high") \
	X(TOKENS, "tokens_per_s") X(TOKENS_LOW, "tokens_per_s_low") X(TOKENS_HIGH, "tokens_per_s_high") X(STEP, "step_s") \
	/* the ledger of a step, in the order of enum oom_time_part */ \
	X(PRODUCTS, "products_s") X(ATTENTION, "attention_s") X(TRAFFIC, "traffic_s") X(UNPACKING, "unpacking_s") \
	X(LAUNCHES, "launches_s") X(TENSOR, "tensor_parallel_s") X(EXPERT, "expert_parallel_s") \
	X(CONTEXT, "context_parallel_s") X(PIPELINE, "pipeline_s") X(BUBBLE, "bubble_s") \
	X(GRADIENTS, "data_parallel_s") X(OPTIMIZER, "optimizer_s") X(HOST, "host_s") X(BINDS, "binds")
#define ID(id, name) SWEEP_##id,
enum { OOM_SWEEP_RESULTS(ID) SWEEP_RESULTS };
#undef ID

#endif
