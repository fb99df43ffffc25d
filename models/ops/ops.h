/* The operations families are written in.  Each allocates, saves and later needs what PyTorch's
 * does.
 *
 * Inputs are consumed unless passed as oom_keep(x).  Sizes are (monomial x width); views cost
 * nothing. */
#ifndef OOM_OPS_H
#define OOM_OPS_H

#include "tape/tape.h"

enum oom_node_kind {
	OOM_NODE_LINEAR = OOM_NODE_CKPT + 1,    /* saved x, w; edges x, w[, bias] */
	OOM_NODE_MUL,           /* saved the other factors; edges a, b */
	OOM_NODE_ADD,           /* edges a, b */
	OOM_NODE_UNARY,         /* saved one; edge x */
	OOM_NODE_SOFTMAX,       /* saved result; the gradient comes in the input's type */
	OOM_NODE_PASS,          /* gradient passes unchanged (views, clones) */
	OOM_NODE_CAST,          /* edge in another type */
	/* view + transpose: copies a gradient that is not laid out as [b, s, h, d] */
	OOM_NODE_HEADS,
	OOM_NODE_MERGE,         /* transpose back: hands down a transposed gradient */
	OOM_NODE_SLICE,         /* zeros of the whole, part copied in */
	OOM_NODE_SPLIT,         /* gradients of the parts concatenated */
	OOM_NODE_CAT,           /* views of the gradient */
	OOM_NODE_STACK,         /* the same, with gaps between their elements */
	OOM_NODE_MEAN,          /* gradient expanded and divided */
	OOM_NODE_SUM,           /* gradient expanded: a view */
	OOM_NODE_EXPAND,        /* gradient summed over the expanded dimensions */
	OOM_NODE_BMM,           /* saved a, b; edges a, b */
	OOM_NODE_LAYER_NORM,    /* saved x, mean, rstd; edges x, w, b */
	OOM_NODE_EMBEDDING,     /* saved ids; edge w */
	OOM_NODE_FLASH, OOM_NODE_EFFICIENT,
	OOM_NODE_NLL,           /* saved log-probabilities, target; edge log-probabilities */
	/* dequantised weight is transient, of the result's type; edge x[, bias] */
	OOM_NODE_QUANTISED_LINEAR,
	/* index_select and friends: gradient scattered into zeros of the whole */
	OOM_NODE_GATHER,
	OOM_NODE_DIV,           /* saved divisor (and dividend); edges a, b */
	OOM_NODE_GROUPED_MM,    /* saved x, w; edges x, w */
	OOM_NODE_CONV,          /* saved x, w; edges x, w[, bias] */
	/* saved: the gradients themselves, or what they are written over; edges in the same order */
	OOM_NODE_GIVEN,
	OOM_NODE_WHERE,         /* masked_fill, where: one fresh gradient */
	OOM_NODE_GROUP_NORM,
	OOM_NODE_SET_SLICE,     /* x[part] = y: edges x, y */
	OOM_NODE_INDEX_ADD,     /* rows of y added to x in place: saved rows; edges x, y */
	/* one entry a token out of logits: zeros of them, and what is scattered into these */
	OOM_NODE_PICK,
	/* logsumexp (or log_softmax and a pick: saved) of one sequence after another, unbound before */
	OOM_NODE_ROWS,
	OOM_NODE_LOGSUMEXP,     /* over a stack of two: saved the stack, the result; edges the two */
	OOM_NODE_SUB,           /* edges a, b: the gradient, and its negative */
	OOM_NODE_IN_VIEW,       /* an elementwise operation on a view, in place; edge x */
	OOM_NODE_CHUNKED,       /* saved hidden states, order; edges hidden states, weight */
	OOM_NODE_SMOOTH,        /* a pick out of log-probabilities and their sum */
	OOM_NODE_CUT,           /* saved hidden states, weight, ...; edges the same two */
	OOM_NODE_LIGER_RMS,     /* saved x, weight, rstd; edges x, weight; added: out of place */
	OOM_NODE_CUSTOM,        /* saved and edges: its inputs; temps of the result's size */
	OOM_NODE_LEAF,          /* collects a gradient nobody uses */
	OOM_NODE_KINDS,
};

/* Elementwise functions of one tensor, and what autograd keeps of them
 * (tools/autograd/derivatives.yaml of PyTorch).  CLAMP has both ends, CLAMP_SIDE one. */
enum oom_unary {
	OOM_RELU, OOM_GELU, OOM_SILU, OOM_TANH, OOM_SIGMOID, OOM_EXP, OOM_LOG, OOM_SQUARE, OOM_POW,
	OOM_RSQRT, OOM_SQRT, OOM_NEG, OOM_SCALE, OOM_SOFTPLUS, OOM_COS, OOM_ABS, OOM_HARDSWISH,
	OOM_HARDSIGMOID, OOM_LEAKY_RELU, OOM_ELU, OOM_MISH, OOM_CLAMP, OOM_CLAMP_SIDE,
	OOM_ADD_SCALAR,
	OOM_LOGSIGMOID, OOM_RELU6, OOM_GELU_PYTHON, OOM_CUMSUM, OOM_ERF, OOM_MAXIMUM,
	OOM_UNARIES
};

enum oom_linear_flags {
	OOM_BIAS = 1,
	OOM_NO_LORA = 2,
	OOM_IS_HEAD = 4,
	OOM_NO_QUANT = 8,
	OOM_LORA_NOT_ALL = 16,
	/* x @ weight.T: autocast caches copies of leaves only */
	OOM_NOT_LEAF = 32,
	/* addmm(bias, x, weight): autocast casts in that order (GPT-2's Conv1D) */
	OOM_CONV1D = 64
};

/* Whether the plan's LoRA adapts a linear layer of this name (flags as oom_op_linear's). */
/* The rank of the adapter beside the module made last that has this word. */
uint64_t oom_lora_rank(const struct oom_tape *t, const char *word);
bool oom_lora_adapts(const struct oom_tape *t, const char *name, unsigned flags);
/* Whether `word` is one of the plan's lora-targets. */
bool oom_lora_names(const struct oom_tape *t, const char *word);
/* The same of the module that owns p (NULL: nobody does), by its whole path where the plan says more
 * than last words; all: only exclude-modules may leave it out.  Decided once. */
bool oom_lora_takes(const struct oom_tape *t, struct oom_param *p, const char *word, bool all);
/* Whose old module names PEFT translates into parameters for the model type. */
/* Whether the plan's adapters go on every linear layer, whatever its name. */
bool oom_lora_takes_all(const struct oom_tape *t);
/* The rank of adapters on bare parameters; 0: the plan's kind knows none. */
uint64_t oom_lora_stacked_rank(const struct oom_tape *t);
enum oom_lora_words { OOM_LORA_PLAIN, OOM_LORA_MIXTRAL, OOM_LORA_QWEN2_MOE };
enum oom_lora_words oom_lora_words(const struct oom_tape *t);
/* Whether `word`, a module's old name, is translated for this type: nn.Linear layers of that name
 * are then left alone (shared experts and dense layers too). */
bool oom_lora_translated(const struct oom_tape *t, const char *word);

struct oom_val oom_op_cast(struct oom_tape *t, struct oom_val x, enum oom_dtype dt);
/* The weight of a quantised layer as its library computes with it: `elems` elements of type dt, held
 * until dropped. */
struct oom_val oom_dequantised(struct oom_tape *t, uint64_t elems, enum oom_dtype dt);
/* y = x W^T (+ b).  name is the module's last word ("q_proj"): LoRA targets are matched against
 * it. */
struct oom_val oom_op_linear(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_dim out, unsigned flags);
/* The same with the input width given (x may be a view whose width is a multiple of it). */
struct oom_val oom_op_linear_in(struct oom_tape *t, const char *name, struct oom_val x, uint64_t in,
				struct oom_dim out, unsigned flags);
/* A linear layer that is called more than once: its weights first, then each call. */
enum { OOM_ADAPTER_PARAMS = 6 };
struct oom_adapter;
struct oom_linear {
	const char *name;
	struct oom_val w, bias;
	const struct oom_adapter *adapter;      /* NULL: none */
	struct oom_val p[OOM_ADAPTER_PARAMS];   /* the adapter's */
	struct oom_dim out;
	uint64_t in;
	unsigned flags;
};
/* A parameter that an adapter trains beside a layer: OOM_P_LORA and these flags. */
struct oom_adapter_param {
	const char *name;
	uint64_t rows, cols;
	uint32_t flags;
};
/* A weight or bias of a norm, or where the plan trains a copy, the copy (t->scope: its name). */
struct oom_val oom_norm_param(struct oom_tape *t, const char *name, uint64_t width);
/* Those beside a linear layer of this name (flags as oom_op_linear's); returns how many, 0 where the
 * plan adapts it not. */
size_t oom_adapter_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  unsigned flags, struct oom_adapter_param q[OOM_ADAPTER_PARAMS]);
/* The adapter's parameters of l, where the plan gives the layer one; flags added to theirs. */
void oom_adapter_open(struct oom_tape *t, struct oom_linear *l, uint32_t flags);
/* What all layers' adapters share: once, when the model is recorded. */
void oom_adapter_shared(struct oom_tape *t);
/* For a layer that has one: what its adapter makes of x before the base layer runs, and of x and the
 * base layer's result y after.  All consumed. */
struct oom_val oom_adapter_before(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
struct oom_val oom_adapter_after(struct oom_tape *t, struct oom_val x, struct oom_val y,
				 const struct oom_linear *l, bool quantised);
bool oom_linear_open(struct oom_tape *t, struct oom_linear *l, const char *name, uint64_t in,
		     struct oom_dim out, unsigned flags);
struct oom_val oom_linear_run(struct oom_tape *t, const struct oom_linear *l, struct oom_val x);
/* The layer itself where its weight is held in few bits; x consumed. */
struct oom_val oom_quantised_linear(struct oom_tape *t, const struct oom_linear *l,
				    struct oom_val x);
/* Whether a layer of these flags is held in few bits; then makes what lies beside the weight. */
bool oom_quantised_open(struct oom_tape *t, uint64_t out, uint64_t in, unsigned flags);
/* How PEFT adds what LoRA makes to the result of such a layer (peft/tuners/lora/{bnb,gptq,awq,hqq}.py): as
 * over any other; to a clone of it; in the result's type; in fp32 and cast then. */
enum oom_lora_over {
	OOM_LORA_OVER_ANY, OOM_LORA_OVER_CLONE, OOM_LORA_OVER_RESULT, OOM_LORA_OVER_SUM
};
enum oom_lora_over oom_quantised_over(const struct oom_tape *t);
/* The weight as a backward pass computes with it; held until dropped. */
struct oom_val oom_dequantised_back(struct oom_tape *t, uint64_t elems, enum oom_dtype dt);
/* The blocks, in bytes, that a weight of n elements takes as the plan's base holds it, in the order of
 * their allocation; returns how many. */
enum { OOM_QUANTISED_BLOCKS = 6 };
size_t oom_quantised_blocks(const struct oom_plan *plan, uint64_t n,
			    uint64_t block[OOM_QUANTISED_BLOCKS]);
/* The weights of a linear layer that the step never runs, adapters included. */
void oom_linear_unused(struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
		       unsigned flags);
/* y = x W^T with a weight that exists already (tied heads); bias may be absent (node -1). */
struct oom_val oom_op_matmul_param(struct oom_tape *t, const char *name, struct oom_val x,
				   struct oom_val w, struct oom_val bias, struct oom_dim out);
/* The weight that runs in w's place: where modules-to-save names the module, PEFT trains a copy of it
 * beside the frozen one (peft/utils/other.py, ModulesToSaveWrapper); else w. */
struct oom_val oom_saved_copy(struct oom_tape *t, const char *word, struct oom_val w);
/* The words' table with the rows that train put into a copy of it, where the plan has such
 * (trainable-tokens); else w.  The copy is the caller's. */
struct oom_val oom_token_rows(struct oom_tape *t, struct oom_val w);
/* The module that looks a table up. */
const char *oom_table_module(const struct oom_param *table);
/* The same as a module of its own, which an adapter may be put on. */
struct oom_val oom_op_matmul_tied(struct oom_tape *t, const char *name, struct oom_val x,
				  struct oom_val w, struct oom_val bias, struct oom_dim out);
struct oom_val oom_op_add(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* a + b where neither has the shape of the sum. */
struct oom_val oom_op_add_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width);
/* a += b on a's storage. */
struct oom_val oom_op_add_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_sub(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* logsumexp(stack([a, b]), 0). */
struct oom_val oom_op_log_add(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_mul(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_div(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* a /= b: the quotient in the type of a. */
struct oom_val oom_op_div_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_unary(struct oom_tape *t, enum oom_unary f, struct oom_val x);
/* maximum(x, torch.tensor(least)): the tensor of one element is made for it, and saved with x. */
struct oom_val oom_op_at_least(struct oom_tape *t, struct oom_val x);
/* Views.  width is of the new shape; the storage is shared. */
struct oom_val oom_op_view(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width);
struct oom_val oom_op_heads(struct oom_tape *t, struct oom_val x);
struct oom_val oom_op_merge_heads(struct oom_tape *t, struct oom_val x);
/* .contiguous() of something that is not, .clone(): a copy. */
struct oom_val oom_op_copy(struct oom_tape *t, const char *name, struct oom_val x);
/* x /= temperature where x is a view: autograd copies the gradient of the whole, clones the part and
 * divides it (CopySlices, torch/csrc/autograd/functions/tensor.cpp). */
struct oom_val oom_op_temper(struct oom_tape *t, struct oom_val x, uint16_t view);
/* A part of the last dimension, as a view. */
struct oom_val oom_op_slice(struct oom_tape *t, struct oom_val x, uint16_t mono,
			    struct oom_dim width);
/* chunk / split into n parts, as views.  All of them must be used: zeros in the place of a missing
 * gradient are not counted. */
void oom_op_split(struct oom_tape *t, struct oom_val x, int n, const struct oom_dim *widths,
		  struct oom_val *out);
struct oom_val oom_op_cat(struct oom_tape *t, struct oom_val a, struct oom_val b,
			  struct oom_dim width);
/* The same with the whole shape given (concatenation along the sequence). */
struct oom_val oom_op_cat_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width);
/* mean / sum over the last dimension(s): result of the given width. */
struct oom_val oom_op_mean(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width);
struct oom_val oom_op_sum(struct oom_tape *t, struct oom_val x, uint16_t mono,
			  struct oom_dim width);
/* expand + reshape: a copy of the given size whose gradient is summed. */
struct oom_val oom_op_expand_copy(struct oom_tape *t, struct oom_val x, uint16_t mono,
				  struct oom_dim width);
/* expand alone: a view whose gradient is summed. */
struct oom_val oom_op_expand(struct oom_tape *t, struct oom_val x, uint16_t mono,
			     struct oom_dim width);
struct oom_val oom_op_softmax(struct oom_tape *t, struct oom_val x, bool to_fp32);
struct oom_val oom_op_log_softmax(struct oom_tape *t, struct oom_val x);
struct oom_val oom_op_dropout(struct oom_tape *t, struct oom_val x, double p);
/* nn.Dropout(inplace=True), on x's storage. */
struct oom_val oom_op_dropout_inplace(struct oom_tape *t, struct oom_val x, double p);
/* batched matmul: out = (mono, width); saves both. */
struct oom_val oom_op_bmm(struct oom_tape *t, const char *name, struct oom_val a, struct oom_val b,
			  uint16_t mono, struct oom_dim width, uint64_t inner);
/* nn.LayerNorm over `width` (0: all of x's width) with weight and bias. */
struct oom_val oom_op_layer_norm(struct oom_tape *t, const char *name, struct oom_val x,
				 uint64_t width, bool affine, bool bias);
/* LayerNorm with weight + 1 and bias, its arguments cast by hand where autocast is on. */
struct oom_val oom_op_layer_norm_1p(struct oom_tape *t, const char *name, struct oom_val x);
/* nn.Embedding: rows of `dim` for every id (ids: an integer tensor, kept by autograd). */
struct oom_val oom_op_embedding(struct oom_tape *t, const char *name, struct oom_val ids,
				uint64_t vocab, struct oom_dim dim, uint32_t flags);
struct oom_val oom_op_embedding_param(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				      uint64_t vocab, struct oom_dim dim);
/* The lookup alone, without the adapter that the plan may put on the table. */
struct oom_val oom_embedding_lookup(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				    struct oom_dim dim);
/* y, looked up by ids in the table w, with its adapter where LoRA names the module; that of the words'
 * table waits for oom_lora_embedded, which oom_input_grads calls. */
struct oom_val oom_lora_embedding(struct oom_tape *t, struct oom_val y, struct oom_val w,
				  struct oom_val ids, struct oom_dim dim);
struct oom_val oom_lora_embedded(struct oom_tape *t, struct oom_val x);
/* x, a sequence's embedded tokens, behind the trained ones that the plan's adapter puts before them; once
 * in a pass. */
struct oom_val oom_prompted(struct oom_tape *t, struct oom_val x);
/* PEFT's forward returns, and its names of the two die. */
void oom_prompts_leave(struct oom_tape *t);
/* Index select / gather along rows: out = (mono, width), gradient scattered into zeros of x. */
struct oom_val oom_op_gather(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val index, uint16_t mono, struct oom_dim width);
/* where / masked_fill with a mask that needs no gradient. */
struct oom_val oom_op_masked(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val mask);
/* masked_fill_ on x's own storage. */
struct oom_val oom_op_masked_inplace(struct oom_tape *t, struct oom_val x, struct oom_val mask);
/* One product a group of rows: w is stacked [experts, out, in]; not on autocast's lists. */
struct oom_val oom_op_grouped_mm(struct oom_tape *t, const char *name, struct oom_val x,
				 struct oom_val w, struct oom_val offs, uint64_t in,
				 struct oom_dim out);
/* Convolution with weight rows x cols; out = (mono, width). */
struct oom_val oom_op_conv(struct oom_tape *t, const char *name, struct oom_val x, uint64_t rows,
			   uint64_t cols, bool bias, uint16_t mono, struct oom_dim width);
/* One kernel a channel, in one dimension: a weight [channels, 1, kernel]. */
struct oom_val oom_op_conv_depthwise(struct oom_tape *t, const char *name, struct oom_val x,
				     uint64_t kernel, bool bias, uint16_t mono,
				     struct oom_dim width);
/* The same with a weight that is there, and a bias or none. */
struct oom_val oom_op_conv_param(struct oom_tape *t, struct oom_val x, struct oom_val w,
				 struct oom_val bias, uint16_t mono, struct oom_dim width);
/* A convolution of one position in groups, adapted where LoRA names it: A over all channels, B in
 * groups (peft 0.20, tuners/lora/layer.py _ConvNd). */
struct oom_val oom_op_conv_adapted(struct oom_tape *t, const char *name, struct oom_val x,
				   uint64_t groups, bool bias, struct oom_dim out);

struct oom_sdpa {
	uint64_t heads, kv_heads, d, dv;
	uint16_t mq, mk;        /* tokens of the queries and of the keys (monomials) */
	uint16_t sk;            /* length of the keys alone (monomial) */
	uint16_t sq;            /* of the queries alone; OOM_MONO_ONE: not known */
	bool causal, gqa;
	double dropout;
};
/* scaled_dot_product_attention: kernel choice of a CUDA build on sm80, then that kernel.  mask:
 * sto -1 when absent. */
struct oom_val oom_op_sdpa(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v,
			   struct oom_val mask, const struct oom_sdpa *a);
/* The flash_attn package: [b, s, h, d], grouped heads native, 16-bit inputs. */
struct oom_val oom_op_flash(struct oom_tape *t, struct oom_val q, struct oom_val k,
			    struct oom_val v, const struct oom_sdpa *a);

/* What Python's caller holds until an operation returns: x, while the operation works on a cast of
 * it; nothing when the caller keeps x anyway. */
struct oom_val oom_argument(struct oom_tape *t, struct oom_val x);

/* The type of a result of both. */
enum oom_dtype oom_promote(struct oom_val a, struct oom_val b);
/* The operand whose shape the result has: where the shapes do not say it for every batch, the sizes
 * do, and are remembered as a condition. */
struct oom_val oom_larger(struct oom_tape *t, struct oom_val a, struct oom_val b);

#endif
