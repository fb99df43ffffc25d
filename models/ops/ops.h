/* The operations in which families are written.  Each one allocates what PyTorch's operation allocates and
 * saves what its derivative needs.
 *
 * An operation consumes its inputs unless they are passed as oom_keep(x).  Sizes are given as monomial x width.
 * Views allocate nothing. */
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
	OOM_NODE_AS_STRIDED,    /* zeros of the whole, added to by the places of the elements */
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
	OOM_NODE_TRACED,        /* attention written out in a compiled graph: saved q, k, v, scores[, dropout mask] */
	OOM_NODE_NLL,           /* saved log-probabilities, target; edge log-probabilities */
	/* dequantised weight is transient, of the result's type; edge x[, bias] */
	OOM_NODE_QUANTISED_LINEAR,
	/* index_select and similar: the gradient is scattered into zeros of the whole size */
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
	/* one entry per token out of logits: zeros of their size, into which the gradient is scattered */
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
	OOM_NODE_FAST_LORA,     /* saved x and what dropout left of it; edges the base's result, which it adds to, A, B */
	OOM_NODE_CUSTOM,        /* saved and edges: its inputs; temps of the result's size */
	/* saved masks, scores' expectation, q, k, v; edges q, k, v; aux: the scores (YosoCumulation) */
	OOM_NODE_CUMULATION,
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
	OOM_CONV1D = 64,
	/* x has three dimensions, of which the first two do not lie one behind the other: a weight that needs no
	 * gradient is spread over the first, and nothing is copied */
	OOM_BATCHED = 128,
	/* of a class derived from nn.Linear, which transformers 5 does not quantise */
	OOM_DERIVED = 256
};

/* The rank of the adapter of the module made last whose name has this word. */
uint64_t oom_lora_rank(const struct oom_tape *t, const char *word);
/* True if the plan's LoRA adapts a linear layer of this name; flags are those of oom_op_linear. */
bool oom_lora_adapts(const struct oom_tape *t, const char *name, unsigned flags);
/* True if `word` is one of the plan's lora-targets. */
bool oom_lora_names(const struct oom_tape *t, const char *word);
/* True if the plan adapts the module that owns p (NULL: no module does).  The module's whole path is compared
 * if the plan gives more than last words.  all: only exclude-modules may leave it out.  This is decided once
 * per parameter. */
bool oom_lora_takes(const struct oom_tape *t, struct oom_param *p, const char *word, bool all);
/* True if the plan's adapters are on every linear layer, whatever its name. */
bool oom_lora_takes_all(const struct oom_tape *t);
/* The rank of adapters on bare parameters; 0 if the plan's kind of adapter has none. */
uint64_t oom_lora_stacked_rank(const struct oom_tape *t);
/* The model types whose old module names PEFT translates into parameters. */
enum oom_lora_words { OOM_LORA_PLAIN, OOM_LORA_MIXTRAL, OOM_LORA_QWEN2_MOE };
enum oom_lora_words oom_lora_words(const struct oom_tape *t);
/* True if PEFT translates `word`, a module's old name, for this type.  nn.Linear layers of that name, shared
 * experts and dense layers among them, are then not adapted. */
bool oom_lora_translated(const struct oom_tape *t, const char *word);

struct oom_val oom_op_cast(struct oom_tape *t, struct oom_val x, enum oom_dtype dt);
/* x is written in place: what was cast of it before, or it was cast to, is another tensor in a compiled graph. */
void oom_forget_casts(struct oom_tape *t, struct oom_val x);
/* The dequantised weight of a layer: `elems` elements of type dt, alive until it is dropped. */
struct oom_val oom_dequantised(struct oom_tape *t, uint64_t elems, enum oom_dtype dt);
/* y = x W^T (+ b).  name is the last word of the module's path ("q_proj"), with which LoRA targets are
 * compared. */
struct oom_val oom_op_linear(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_dim out, unsigned flags);
/* The same with the input width given; x may be a view whose width is a multiple of it. */
struct oom_val oom_op_linear_in(struct oom_tape *t, const char *name, struct oom_val x, uint64_t in,
				struct oom_dim out, unsigned flags);
/* A linear layer that is called more than once: it is opened first, and then run for each call. */
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
/* A parameter that an adapter trains beside a layer; its flags are OOM_P_LORA and these. */
struct oom_adapter_param {
	const char *name;
	uint64_t rows, cols;
	uint32_t flags;
};
/* The weight or bias of a norm, or the copy of it that the plan trains.  t->scope is the norm's name. */
struct oom_val oom_norm_param(struct oom_tape *t, const char *name, uint64_t width);
/* The adapter's parameters of a linear layer of this name; flags are those of oom_op_linear.  Returns how many
 * there are, 0 if the plan does not adapt it. */
size_t oom_adapter_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  unsigned flags, struct oom_adapter_param q[OOM_ADAPTER_PARAMS]);
/* A parameter of an adapter, and those of the plan's idle ones. */
struct oom_val oom_adapter_weight(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols, uint32_t flags);
/* Makes the adapter's parameters of l, if the plan gives it an adapter, with these flags added. */
void oom_adapter_open(struct oom_tape *t, struct oom_linear *l, uint32_t flags);
/* Makes what the adapters of all layers share, once per recording. */
void oom_adapter_shared(struct oom_tape *t);
/* For a layer with an adapter: what the adapter makes of x before the base layer runs, and of x and the base
 * layer's result y afterwards.  Both consume their values. */
struct oom_val oom_adapter_before(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
struct oom_val oom_adapter_after(struct oom_tape *t, struct oom_val x, struct oom_val y,
				 const struct oom_linear *l, bool quantised);
/* Whether the layer's adapter runs in its place, and that. */
bool oom_adapter_replaces(const struct oom_linear *l);
struct oom_val oom_adapter_instead(struct oom_tape *t, struct oom_val x, const struct oom_linear *l);
bool oom_linear_open(struct oom_tape *t, struct oom_linear *l, const char *name, uint64_t in,
		     struct oom_dim out, unsigned flags);
struct oom_val oom_linear_run(struct oom_tape *t, const struct oom_linear *l, struct oom_val x);
/* Runs a layer whose weight is quantised.  Consumes x. */
struct oom_val oom_quantised_linear(struct oom_tape *t, const struct oom_linear *l,
				    struct oom_val x);
/* True if a layer with these flags is quantised; what its library keeps beside the weight is then made. */
bool oom_quantised_open(struct oom_tape *t, uint64_t out, uint64_t in, unsigned flags);
/* What is held beside a table of words in a model whose layers are quantised. */
void oom_quantised_table(struct oom_tape *t, uint64_t rows, uint64_t width);
/* How PEFT adds LoRA's result to that of a quantised layer (peft/tuners/lora/{bnb,gptq,awq,hqq}.py): as for any
 * other layer; to a clone of it; in the result's type; in fp32, followed by a cast. */
enum oom_lora_over {
	OOM_LORA_OVER_ANY, OOM_LORA_OVER_CLONE, OOM_LORA_OVER_RESULT, OOM_LORA_OVER_SUM
};
enum oom_lora_over oom_quantised_over(const struct oom_tape *t);
/* The dequantised weight for the backward pass, alive until it is dropped. */
struct oom_val oom_dequantised_back(struct oom_tape *t, uint64_t elems, enum oom_dtype dt);
/* A weight that something else than a linear layer reads, whole, which a product may save. */
struct oom_val oom_made_whole(struct oom_tape *t, const char *name, uint64_t elems, const char *text);
/* How many elements of a row share a scale in this form, where nothing says it; 0: it has no such groups. */
uint32_t oom_quantised_group(enum oom_base base);
/* The sizes in bytes of the blocks in which the plan's base holds a weight, in the order of their allocation.
 * Returns how many there are. */
enum { OOM_QUANTISED_BLOCKS = 6 };
/* Whether the base's codes are made on the card, of weights that come to it in 16 bit one after the other. */
bool oom_quantised_on_card(const struct oom_plan *plan);
/* Whether its modules hold their weights in buffers. */
bool oom_quantised_in_buffers(enum oom_base base);
/* Whether they do so in this plan: parameters alone are divided between ranks, buffers are whole on every card. */
bool oom_quantised_whole(const struct oom_plan *plan);
size_t oom_quantised_blocks(const struct oom_plan *plan, const struct oom_param *q,
			    uint64_t block[OOM_QUANTISED_BLOCKS]);
/* Makes the weights of a linear layer that the step never runs, with those of its adapter. */
struct oom_val oom_linear_unused(struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
				 unsigned flags);
/* y = x W^T with a weight that exists already (a tied head).  bias may be absent (oom_none). */
struct oom_val oom_op_matmul_param(struct oom_tape *t, const char *name, struct oom_val x,
				   struct oom_val w, struct oom_val bias, struct oom_dim out);
/* Whether modules-to-save names a module of this word. */
bool oom_saves(const struct oom_plan *p, const char *word);
/* True if a module that p's lies in, such as a head of two layers, is one. */
bool oom_saves_around(const struct oom_tape *t, const struct oom_param *p);
/* The weight that is used: if modules-to-save names the module, the copy that PEFT trains beside the frozen one
 * (peft/utils/other.py, ModulesToSaveWrapper); otherwise w. */
struct oom_val oom_saved_copy(struct oom_tape *t, const char *word, struct oom_val w);
/* With trainable-tokens, a copy of the embedding table w that contains the trained rows, which the caller owns;
 * otherwise w. */
struct oom_val oom_token_rows(struct oom_tape *t, struct oom_val w);
/* Whether a table is the words': classes add up to eight rows to vocab_size (modeling_mllama.py embed_tokens, modeling_moshi.py). */
bool oom_word_table(const struct oom_tape *t, const struct oom_param *table);
/* The name of the module that looks up a table. */
const char *oom_table_module(const struct oom_param *table);
/* The same as a module of its own, which may have an adapter. */
struct oom_val oom_op_matmul_tied(struct oom_tape *t, const char *name, struct oom_val x,
				  struct oom_val w, struct oom_val bias, struct oom_dim out);
struct oom_val oom_op_add(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* a + b if neither has the shape of the sum. */
struct oom_val oom_op_add_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width);
/* a += b, in a's storage. */
struct oom_val oom_op_add_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_sub(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* logsumexp(stack([a, b]), 0). */
struct oom_val oom_op_log_add(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_mul(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_div(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* a /= b; the quotient has a's type. */
struct oom_val oom_op_div_inplace(struct oom_tape *t, struct oom_val a, struct oom_val b);
struct oom_val oom_op_unary(struct oom_tape *t, enum oom_unary f, struct oom_val x);
/* maximum(x, torch.tensor(least)).  The tensor of one element is made by the call and saved with x. */
struct oom_val oom_op_at_least(struct oom_tape *t, struct oom_val x);
/* A checkpointed block hands x on to something that its closure holds, too.  Run again, x has a graph of its own, which
 * holds what its operations saved until the first block of the model has been run again (torch.utils.checkpoint,
 * _recomputation_hook's pack_hook returns the tensor to the second run's graph; a reentrant checkpoint's backward pass
 * frees them).  first: the block's first node.  Nothing outside of a second run. */
void oom_hold_graph(struct oom_tape *t, size_t first, struct oom_val x);
/* Views, which share the storage.  width is that of the new shape. */
struct oom_val oom_op_view(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width);
struct oom_val oom_op_heads(struct oom_tape *t, struct oom_val x);
struct oom_val oom_op_merge_heads(struct oom_tape *t, struct oom_val x);
/* A copy: .clone(), or .contiguous() of a tensor that is not contiguous. */
struct oom_val oom_op_copy(struct oom_tape *t, const char *name, struct oom_val x);
/* x /= temperature on a view x.  Autograd then copies the gradient of the whole tensor, and clones and divides
 * the view's part (CopySlices, torch/csrc/autograd/functions/tensor.cpp). */
struct oom_val oom_op_temper(struct oom_tape *t, struct oom_val x, uint16_t view);
/* A view whose gradient is laid out anew, or an operation in x's place of which autograd keeps nothing. */
struct oom_val oom_op_over(struct oom_tape *t, const char *name, struct oom_val x);
/* A view with an entry of its own in the graph, where the gradients of what is made of it add up. */
struct oom_val oom_op_viewed(struct oom_tape *t, struct oom_val x);
/* a += b where a is a view (CopySlices, torch/csrc/autograd/functions/tensor.cpp): the whole's gradient is copied,
 * and b's is a copy of that. */
struct oom_val oom_op_add_in_view(struct oom_tape *t, struct oom_val a, struct oom_val b);
/* x.as_strided(...) whose elements overlap: a view.  turned: its gradient comes transposed. */
struct oom_val oom_op_as_strided(struct oom_tape *t, struct oom_val x, uint16_t mono,
				 struct oom_dim width, bool turned);
/* A part of the last dimension, as a view. */
struct oom_val oom_op_slice(struct oom_tape *t, struct oom_val x, uint16_t mono,
			    struct oom_dim width);
/* chunk or split into n parts, as views.  All parts must be used, because zeros in place of a missing gradient
 * are not counted. */
void oom_op_split(struct oom_tape *t, struct oom_val x, int n, const struct oom_dim *widths,
		  struct oom_val *out);
struct oom_val oom_op_cat(struct oom_tape *t, struct oom_val a, struct oom_val b,
			  struct oom_dim width);
/* The same with the whole shape given, for a concatenation along the sequence. */
struct oom_val oom_op_cat_into(struct oom_tape *t, struct oom_val a, struct oom_val b,
			       uint16_t mono, struct oom_dim width);
/* The mean or the sum over the last dimensions; the result has the given width. */
struct oom_val oom_op_mean(struct oom_tape *t, struct oom_val x, uint16_t mono,
			   struct oom_dim width);
struct oom_val oom_op_sum(struct oom_tape *t, struct oom_val x, uint16_t mono,
			  struct oom_dim width);
/* expand and reshape: a copy of the given size, whose gradient is summed. */
struct oom_val oom_op_expand_copy(struct oom_tape *t, struct oom_val x, uint16_t mono,
				  struct oom_dim width);
/* expand alone: a view, whose gradient is summed. */
struct oom_val oom_op_expand(struct oom_tape *t, struct oom_val x, uint16_t mono,
			     struct oom_dim width);
/* softmax(x, dtype=x.dtype): autocast leaves a type alone that is spelt out. */
struct oom_val oom_op_softmax_own(struct oom_tape *t, struct oom_val x);
struct oom_val oom_op_softmax(struct oom_tape *t, struct oom_val x, bool to_fp32);
struct oom_val oom_op_log_softmax(struct oom_tape *t, struct oom_val x);
struct oom_val oom_op_dropout(struct oom_tape *t, struct oom_val x, double p);
/* nn.Dropout(inplace=True), in x's storage. */
struct oom_val oom_op_dropout_inplace(struct oom_tape *t, struct oom_val x, double p);
/* A batched matrix product with a result of (mono, width); it saves both factors. */
struct oom_val oom_op_bmm(struct oom_tape *t, const char *name, struct oom_val a, struct oom_val b,
			  uint16_t mono, struct oom_dim width, uint64_t inner);
/* nn.LayerNorm over `width` elements (0: x's width) with weight and bias. */
struct oom_val oom_op_layer_norm(struct oom_tape *t, const char *name, struct oom_val x,
				 uint64_t width, bool affine, bool bias);
/* LayerNorm with weight + 1 and bias, whose arguments are cast explicitly under autocast. */
struct oom_val oom_op_layer_norm_1p(struct oom_tape *t, const char *name, struct oom_val x);
/* nn.Embedding: a row of `dim` elements for every id.  ids is an integer tensor, which autograd saves. */
struct oom_val oom_op_embedding(struct oom_tape *t, const char *name, struct oom_val ids,
				uint64_t vocab, struct oom_dim dim, uint32_t flags);
struct oom_val oom_op_embedding_param(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				      uint64_t vocab, struct oom_dim dim);
/* The lookup alone, without the adapter that the table may have. */
struct oom_val oom_embedding_lookup(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				    struct oom_dim dim);
/* Adds the adapter of the table w to y, which was looked up by ids, if LoRA names the module.  The adapter of
 * the token embeddings is added later by oom_lora_embedded, which oom_input_grads calls. */
struct oom_val oom_lora_embedding(struct oom_tape *t, struct oom_val y, struct oom_val w,
				  struct oom_val ids, struct oom_dim dim);
struct oom_val oom_lora_embedded(struct oom_tape *t, struct oom_val x);
/* Adapters of a module that holds the table w and that nothing calls, as `shared` of encoder-decoders, whose stacks look
 * the same weight up in modules of their own (modeling_t5.py, modeling_bart.py, _tied_weights_keys). */
void oom_lora_idle_table(struct oom_tape *t, struct oom_val w, const char *module);
/* Puts the trained virtual tokens of the plan's adapter before x, the embedded tokens of a sequence; called once
 * in a pass. */
struct oom_val oom_prompted(struct oom_tape *t, struct oom_val x);
/* Makes the trained keys and values of the plan's adapter, if that is what it trains, in type dt; called before the
 * first layer. */
void oom_prefix_made(struct oom_tape *t, enum oom_dtype dt);
/* Makes the bank of vectors that the plan's adapters are put together of, if it has one; called likewise. */
void oom_bank_made(struct oom_tape *t);
/* How many of them stand before the layers' own; 0: none were made. */
uint64_t oom_prefix_tokens(const struct oom_tape *t);
/* Joins x, a layer's own keys or values over the batch's tokens, to those of the prefix.  Consumes x. */
struct oom_val oom_prefix_joined(struct oom_tape *t, struct oom_val x);
/* The layer has taken its keys and values. */
void oom_prefix_taken(struct oom_tape *t);
/* The model has returned, and its cache goes. */
void oom_prefix_leave(struct oom_tape *t);
/* PEFT's forward returns, which frees its names for both. */
void oom_prompts_leave(struct oom_tape *t);
/* index_select or gather along rows, with a result of (mono, width); the gradient is scattered into zeros of x's
 * size. */
struct oom_val oom_op_gather(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val index, uint16_t mono, struct oom_dim width);
/* where or masked_fill with a mask that needs no gradient. */
struct oom_val oom_op_masked(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val mask);
/* masked_fill_, in x's storage. */
struct oom_val oom_op_masked_inplace(struct oom_tape *t, struct oom_val x, struct oom_val mask);
/* One product per group of rows, with w stacked as [experts, out, in].  It is not on autocast's lists. */
struct oom_val oom_op_grouped_mm(struct oom_tape *t, const char *name, struct oom_val x,
				 struct oom_val w, struct oom_val offs, uint64_t in,
				 struct oom_dim out);
/* A convolution with a weight of rows x cols and a result of (mono, width). */
struct oom_val oom_op_conv(struct oom_tape *t, const char *name, struct oom_val x, uint64_t rows,
			   uint64_t cols, bool bias, uint16_t mono, struct oom_dim width);
/* The same with square kernels over so many planes for every channel of the result, [out, planes, kernel, kernel]. */
struct oom_val oom_op_conv_square(struct oom_tape *t, const char *name, struct oom_val x, uint64_t planes, uint64_t kernel,
				  bool bias, uint16_t mono, struct oom_dim out);
/* A depthwise convolution in one dimension, with a weight of [channels, 1, kernel]. */
struct oom_val oom_op_conv_depthwise(struct oom_tape *t, const char *name, struct oom_val x,
				     uint64_t kernel, bool bias, uint16_t mono,
				     struct oom_dim width);
/* A convolution with a weight that exists already, and a bias or none. */
struct oom_val oom_op_conv_param(struct oom_tape *t, struct oom_val x, struct oom_val w,
				 struct oom_val bias, uint16_t mono, struct oom_dim width);
/* A convolution of kernel size 1 in groups, with an adapter if LoRA names it: A is over all channels, B in groups
 * (peft 0.20, tuners/lora/layer.py, _ConvNd). */
struct oom_val oom_op_conv_adapted(struct oom_tape *t, const char *name, struct oom_val x,
				   uint64_t groups, bool bias, struct oom_dim out);

struct oom_sdpa {
	uint64_t heads, kv_heads, d, dv;
	uint16_t mq, mk;        /* tokens of the queries and of the keys (monomials) */
	uint16_t sk;            /* length of the keys alone (monomial) */
	uint16_t sq;            /* length of the queries alone; OOM_MONO_ONE: unknown */
	bool causal, gqa;
	bool across;            /* elements of a head do not lie side by side: fused kernels refuse them */
	bool rows_apart;        /* the mask's rows do not lie together, which fused kernels refuse */
	double dropout;
};
/* scaled_dot_product_attention: chooses the kernel as a CUDA build does on sm80, and runs it.  mask may be absent
 * (oom_none). */
struct oom_val oom_op_sdpa(struct oom_tape *t, struct oom_val q, struct oom_val k, struct oom_val v,
			   struct oom_val mask, const struct oom_sdpa *a);
/* The flash_attn package: [b, s, h, d], grouped heads without copies, 16-bit inputs. */
struct oom_val oom_op_flash(struct oom_tape *t, struct oom_val q, struct oom_val k,
			    struct oom_val v, const struct oom_sdpa *a);

/* What the Python caller holds until an operation returns: x, while the operation works on a cast of it; nothing
 * if the caller keeps x anyway. */
struct oom_val oom_argument(struct oom_tape *t, struct oom_val x);

/* The type to which the types of both are promoted. */
enum oom_dtype oom_promote(struct oom_val a, struct oom_val b);
/* The operand that has the result's shape.  If the shapes alone do not decide this for every batch, the present
 * sizes do, and the tape remembers that as a condition. */
struct oom_val oom_larger(struct oom_tape *t, struct oom_val a, struct oom_val b);

#endif
