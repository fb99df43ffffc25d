/* Between the files of the Megatron engine. */
#ifndef OOM_MEGATRON_PARTS_H
#define OOM_MEGATRON_PARTS_H

#include "oomplan/megatron.h"
#include "oomplan/model.h"

/* What one model chunk of a pipeline rank holds. */
struct mg_chunk {
	/* layers: with a dense MLP, with experts, prediction modules */
	int64_t dense, moe, mtp;
	bool embedding, loss;
};
enum { MG_CHUNKS = 64 };
/* Chunks of pipeline rank r, first to last; returns their number. */
size_t oom_mg_chunks(const struct oom_megatron *m, int64_t r, struct mg_chunk out[MG_CHUNKS]);
/* How layers lie that nobody laid out (enum oom_mg_split). */
int64_t oom_mg_split(const struct oom_megatron *m);
/* What a launch was given so, as the argument has it; "" where it needs no layout or has no room. */
void oom_mg_write_layout(const struct oom_megatron *m, char *out, size_t cap);
/* Of the ranks between the ends none holds more than the one before it. */
bool oom_mg_ranks_alike(const struct oom_megatron *m);
/* A layout as Megatron's argument has it, written out; at most cap - 1 letters. */
enum oom_status oom_mg_expand_layout(const char *text, char *out, size_t cap, struct oom_error *err);
/* Chunks a rank holds that the written-out layout speaks of; 0: one, or it fits no number of them. */
int64_t oom_mg_layout_chunks(const struct oom_megatron *m);
/* Refuses what get_num_layers_to_build asserts. */
enum oom_status oom_mg_check_stages(const struct oom_megatron *m, struct oom_error *err);

/* Parameters of a chunk on one rank; experts apart. */
struct mg_params {
	double dense, expert, largest;  /* largest: of one layer, experts included */
	/* of dense and of expert: elements of the layers' matrices, which Muon orthogonalises and
	 * TransformerEngine multiplies in 8 bit (the router's, in neither of the two, is not) */
	double matrices, expert_matrices;
	double largest_matrices;
};
struct mg_params oom_mg_params(const struct oom_megatron *m, const struct mg_chunk *c,
			       bool last_rank);

/* Elements of one weight matrix of every shape the layers hold. */
double oom_mg_matrix_elems(const struct oom_megatron *m, bool dense, bool moe);

/* Bytes one forward pass of a layer leaves for backward, and what its backward needs besides. */
struct mg_layer {
	/* saved: with the launch's recomputation and offload; full: without; away: what waits in
	 * host memory */
	double saved, full, transient, away;
};
struct mg_layer oom_mg_layer(const struct oom_megatron *m, bool experts, double seq,
			     double cross_seq);
double oom_mg_moe_saved(const struct oom_megatron *m, double seq);
/* Tokens of one micro-batch on this rank. */
double oom_mg_tokens(const struct oom_megatron *m, double seq);


/* An fp8 recipe on the launch's card: bytes an element of a cached 8-bit weight takes, of one kept as
 * parameter, and of a matrix product's input kept for backward. */
struct mg_fp8 {
	double cached, param, kept;
};
const struct mg_fp8 *oom_mg_fp8(const struct oom_megatron *m);

/* The same rank of torchtitan's mix of FSDP2 with tensor, pipeline and context parallelism. */
struct oom_plan;
enum oom_status oom_titan_rank(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			       struct oom_mg_rank *out, struct oom_error *err);

/* What one micro-batch asks of the slowest pipeline rank (work.c). */
struct oom_work oom_mg_work(const struct oom_megatron *m);

#endif
