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
/* The optimizer by its word, as oom_megatron_set sets it, without looking the argument up. */
enum oom_status oom_mg_set_optimizer(struct oom_megatron *m, const char *word, struct oom_error *err);
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
	double adapters, expert_adapters;       /* beside them, where these alone train */
};
struct mg_params oom_mg_params(const struct oom_megatron *m, const struct mg_chunk *c,
			       bool last_rank);

/* One layer's adapters on this rank: A of `in` x `rank`, B of `rank` x `out`, of which the rank holds `a` and `b`
 * elements. */
struct mg_adapter {
	enum oom_mg_target on;
	bool routed, row;               /* of experts; its input is divided by tensor parallelism, as a row's is */
	double in, out, a, b;
};
enum { MG_ADAPTERS = 6 };
size_t oom_mg_adapters(const struct oom_megatron *m, bool experts, struct mg_adapter out[MG_ADAPTERS]);
/* Does the module have one? */
bool oom_mg_adapted(const struct oom_megatron *m, enum oom_mg_target on);

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
/* The same piece by piece, as blocks of the allocator: what waits for the backward, and what the backward
 * makes again before it uses it.  From index mlp on they are the feed-forward's. */
enum { MG_PIECES = 24 };
struct mg_pieces {
	double bytes[MG_PIECES];
	size_t n, mlp;
};
void oom_mg_layer_pieces(const struct oom_megatron *m, bool experts, double seq, struct mg_pieces *kept,
			 struct mg_pieces *again);
/* Bytes that the attention's own backward has beside what the forward kept: the gradient of the scores where
 * they are in memory, else those of q, k and v and FlashAttention's sum of q's in fp32 (flash_api.cpp dq_accum). */
double oom_mg_attention_gradients(const struct oom_megatron *m, double seq);
/* Bytes of the scores of one layer; 0 where they are not in memory. */
double oom_mg_scores_buffer(const struct oom_megatron *m, double seq);
/* Tokens of one micro-batch on this rank. */
double oom_mg_tokens(const struct oom_megatron *m, double seq);


/* Tensors of the optimizer step: those `alone` go before the next comes, the others stay until its end.
 * per_matrix: one for each of the rank's matrices.  gradients_go: what was reduced is let go before those that
 * stay come. */
enum { MG_STEP_BLOCKS = 4 };
struct mg_step_block {
	double bytes;
	bool alone, per_matrix;
};
struct mg_step {
	struct mg_step_block block[MG_STEP_BLOCKS];
	size_t n;
	bool gradients_go;
};
double oom_mg_step_peak(const struct mg_step *s, double gradients);

/* Passes of a rank in the order of its schedule: `warm` forwards, then a backward after each; of several
 * chunks `group` micro-batches go through one before the next. */
struct mg_order {
	int64_t warm, group, micro;
};
void oom_mg_order(const struct oom_megatron *m, int64_t r, size_t n_chunks, struct mg_order *o);

/* Weights of one layer, by matrix; what is no matrix is one together. */
enum { MG_MATRICES = 8 };
struct mg_matrices {
	double elems[MG_MATRICES];
	size_t n;
};
void oom_mg_layer_matrices(const struct oom_megatron *m, bool experts, struct mg_matrices *w);

/* Layers that FSDP2 wraps, bytes of one: its all-gather's output, the parameters copied out of it (kept where
 * they stay gathered), its gradients, what their reduction takes in.  Gathers and reductions have streams, and so
 * pools, of their own (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py). */
struct mg_wrapped {
	bool there, stays;
	double gathered[2], grads[2], reduced[2];       /* dense, of experts */
	double root;                    /* elements that are the root's: embedding and head */
};

/* A rank's step, to be played (play.c). */
enum { MG_FLOW_LOSS = 6 };
struct mg_flow {
	struct oom_mg_rank rank;        /* its rows hold what stays */
	struct mg_chunk chunk[MG_CHUNKS];
	size_t n_chunks;
	/* bytes: a chunk's pass leaves besides its layers; elements of its embedding and head */
	double ends[MG_CHUNKS], end_elems[MG_CHUNKS];
	struct mg_flow_layer {
		struct mg_pieces kept, again;
		struct mg_matrices matrices;
		/* bytes: of the hidden states, and whole where the sequence is divided (else 0); of the
		 * feed-forward's gradients, of the attention's */
		double hidden, gathered, wide, attention;
	} layer[2];                     /* dense, of experts */
	int64_t recomputed;             /* layers of a chunk whose pieces are made again; 0: all */
	double loss[MG_FLOW_LOSS];
	size_t n_loss;
	double plain_loss;              /* logits that F.cross_entropy takes in fp32; 0: loss[] says it */
	bool split_loss;                /* of logits divided by vocabulary, under loss_parallel() */
	struct mg_wrapped wrapped;
	double rest;                    /* bytes throughout forwards and backwards */
	/* weights lie in one buffer, into which those that the model was made with (so many bytes each) are
	 * copied; so do master weights and states, each */
	bool flat_weights, flat_states;
	double made_bytes, shards;      /* shards: ranks that share an optimizer */
	double grad_bytes;              /* of gradients that are tensors of their own; 0: none are */
	bool grads_stay;                /* beyond the step */
	struct mg_order order;
	struct mg_step step;
};
struct oom_player;
/* Plays two steps into p's allocator, which was cleared.  OOM_ERR_LIMIT: too many blocks. */
enum oom_status oom_mg_play(const struct mg_flow *f, struct oom_player *p);
/* Of a launch's pipeline rank r. */
enum oom_status oom_mg_flow(const struct oom_megatron *m, int64_t r, struct mg_flow *out,
			    struct oom_error *err);

/* DeepSpeed's pipeline engine (pipe.c); nothing in other launches. */
bool oom_pipe_divides(const struct oom_megatron *m);            /* its optimizer, at any stage */
double oom_pipe_own_gradients(const struct oom_megatron *m);    /* bytes of each that is a tensor */
bool oom_pipe_passing_gradients(const struct oom_megatron *m);  /* not there between steps */
double oom_pipe_second_gradients(const struct oom_megatron *m, double params);
double oom_pipe_buffers(const struct oom_megatron *m, const struct mg_chunk *c);
double oom_pipe_logits(const struct oom_megatron *m);           /* bytes of each */
void oom_pipe_step(const struct oom_megatron *m, double params, double ranks, struct mg_step *s);

/* An fp8 recipe on the launch's card: bytes that an element of a cached 8-bit weight takes, of one kept as
 * parameter, and of a matrix product's input kept for backward. */
struct mg_fp8 {
	double cached, param, kept;
};
const struct mg_fp8 *oom_mg_fp8(const struct oom_megatron *m);

/* The same rank of torchtitan's mix of FSDP2 with tensor, pipeline and context parallelism. */
struct oom_plan;
enum oom_status oom_titan_rank(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			       struct oom_mg_rank *out, struct oom_error *err);
enum oom_status oom_titan_flow(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			       struct mg_flow *out, struct oom_error *err);

/* What one micro-batch asks of the slowest pipeline rank (work.c). */
struct oom_work oom_mg_work(const struct oom_megatron *m);

#endif
