/* What the search may change: one function per axis, and the values it has. */
#include "axes.h"

#include <string.h>

#include "ladder/moves.h"

static const struct oom_search_axis axes[AXES] = {
	[SEQ] = {"seq-len", "halves, when allowed and nothing longer fits (images: halves of the side)"},
	[GPUS] = {"gpus", "divisors of the asked number, for the objective price"},
	[PRECISION] = {"precision", "16-bit autocast when fp32 was asked; 16-bit weights, which lose small updates, where nothing else fits"},
	[ATTN] = {"attn", "sdpa when eager was asked; eager or flash_attn where they hold less and nothing else fits"},
	[LOSS] = {"loss", "fused where Liger has the model, cut cross-entropy where axolotl has it, torchtune's in chunks; where nothing else fits TRL's in chunks, and Liger's norms and feed-forwards beside the loss"},
	[CKPT] = {"grad-ckpt", "none, full; selective with Megatron"},
	[LORA] = {"lora-r", "16, and QLoRA (only when allowed)"},
	[BATCH] = {"micro-batch", "every divisor of the batch a rank sees"},
	[LAYOUT] = {"zero", "on two GPUs or more: DDP with bucket views, every stage of DeepSpeed and FSDP; tp x pp x cp x ep of "
			    "Megatron; where nothing else fits, FSDP1, small buckets of DeepSpeed, tp x pp x cp beside FSDP2"},
	[OFFLOAD] = {"offload-optimizer", "none, the optimizer, the optimizer and the parameters to the CPU; where nothing else fits, activations, and torchao's optimizer on one GPU"},
	[OPTIMIZER] = {"optimizer", "adamw-8bit-embfp32, paged-adamw-8bit for an AdamW; torchao's where FSDP2 shards"},
	[STEP] = {"optimizer-in-backward", "on one GPU without accumulation, as each gradient comes"},
	[SEQPAR] = {"sp", "sequence parallelism beside Megatron's tensor parallelism"},
	[ALLOCATOR] = {"allocator", "expandable_segments"},
};

const struct oom_search_axis *oom_search_axis_at(size_t i)
{
	return i < AXES ? &axes[i] : NULL;
}

/* ---- values of an axis ---- */

bool search_is_mixture(const struct search_space *s, size_t k)
{
	return !s->megatron && k >= s->n_frameworks && s->asked->gpus > 1;
}

static size_t lengths(const struct search_space *s)
{
	struct oom_plan p = *s->asked;
	size_t n = 1;

	while (s->allow & OOM_ALLOW_SEQ_LEN && n < 32 && move_to_shorter(&p, s->model))
		n++;
	return n;
}

/* The fused loss is one of language models' next tokens. */
static bool has_fused_loss(const struct search_space *s)
{
	const int64_t task = s->asked->task ? s->asked->task : (int64_t)oom_model_task(s->model);

	return task == OOM_TASK_CAUSAL_LM || task == OOM_TASK_IMAGE_TEXT;
}

/* As asked, and without whole logits; TRL's takes another trainer. */
static size_t losses(const struct search_space *s)
{
	return s->asked->fused_ce == s->loss || !has_fused_loss(s) ||
			       (s->loss == OOM_LOSS_CHUNKED_NLL && !s->resorts) ?
		       1 :
		       2;
}

void search_set_loss(const struct search_space *s, size_t k, struct oom_plan *p)
{
	p->fused_ce = losses(s) > 1 ? s->loss : p->fused_ce;
	if (k == losses(s))
		p->liger_kernels = OOM_LIGER_ALL;
}

/* list, which may be NULL: which they are. */
static size_t attentions(const struct search_space *s, int64_t list[4])
{
	const int64_t asked = s->asked->attn;
	int64_t own[4];
	size_t n = 0;

	list = list ? list : own;
	list[n++] = asked;
	if (asked == OOM_ATTN_EAGER)
		list[n++] = OOM_ATTN_SDPA;
	for (size_t i = 0; s->resorts && i < s->n_leaner; i++)
		if (s->leaner[i] != asked)
			list[n++] = s->leaner[i];
	return n;
}

int64_t search_attention(const struct search_space *s, size_t k)
{
	int64_t list[4];

	return k < attentions(s, list) ? list[k] : s->asked->attn;
}

/* Sharding over GPUs that were asked for, like micro-batches and checkpointing, leaves the run as it
 * is. */
enum inexact {
	TO_16_BIT,
	TO_16_BIT_WEIGHTS,
	TO_OTHER_STATES,
	TO_HOOKS,
	TO_HOST,
	TO_ANOTHER_FRAMEWORK,
	TO_SHORTER,
	TO_ADAPTERS
};
static const struct {
	enum search_axis axis;
	enum oom_class cls;
	bool resort;
} inexact[SEARCH_INEXACT] = {
	[TO_16_BIT] = {PRECISION, OOM_NUMERICS, false},
	[TO_16_BIT_WEIGHTS] = {PRECISION, OOM_NUMERICS, true},
	[TO_OTHER_STATES] = {OPTIMIZER, OOM_NUMERICS, false},
	[TO_HOOKS] = {STEP, OOM_NUMERICS, false},
	[TO_HOST] = {OFFLOAD, OOM_PLACEMENT, false},
	[TO_ANOTHER_FRAMEWORK] = {LAYOUT, OOM_PLACEMENT, true},
	[TO_SHORTER] = {SEQ, OOM_SCIENCE, false},
	[TO_ADAPTERS] = {LORA, OOM_SCIENCE, false},
};

static bool fixed(const struct search_space *s, enum search_axis axis)
{
	bool no = (axis == BATCH && s->keep_batch) || (s->hold >> axis & 1);

	/* What waits on the host under checkpoints is their inputs, and all that Unsloth, LLaMA-Factory and torchtune move there
	 * (unsloth_zoo/gradient_checkpointing.py; llamafactory/model/model_utils/checkpointing.py; torchtune's recipes refuse
	 * enable_activation_offloading without enable_activation_checkpointing).  TRL could move every activation instead,
	 * which nobody would try first. */
	no |= axis == CKPT && s->asked->offload_activations && s->asked->grad_ckpt != OOM_CKPT_NONE;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		no |= s->exact_only && inexact[i].axis == axis && axis != LAYOUT;
	return no;
}

bool search_narrow_weights(const struct search_space *s, uint16_t precision)
{
	return precision > (s->asked->precision == OOM_FP32);
}

static bool can_narrow_weights(const struct search_space *s)
{
	struct oom_plan p = *s->asked;

	return !s->megatron && (s->allow & OOM_ALLOW_LORA || move_to_16_bit_weights(&p, s->model));
}

bool search_has_resorts(const struct search_space *s)
{
	return !s->exact_only && !s->megatron;
}

int search_departures(const uint16_t v[OOM_SEARCH_AXES])
{
	int n = (v[OFFLOAD] > PLACES) + (v[LOSS] > 1);

	for (int i = 0; i < AXES; i++)
		n += v[i] != 0;
	return n;
}

static bool differ(const struct oom_option *k, const struct oom_plan *x, const struct oom_plan *y)
{
	return !oom_plan_alike(x, y, k);
}

const char *search_knob(enum search_axis axis, const struct oom_plan *with, const struct oom_plan *without)
{
	/* an axis' other knobs, before what only follows from them */
	static const char *const also[AXES][2] = {[PRECISION] = {"kbit-prepare"},
						  [LOSS] = {"liger-kernels"},
						  [LAYOUT] = {"engine", "reduce-bucket-size"},
						  [OFFLOAD] = {"offload-params", "offload-activations"}};
	const struct oom_option *k = oom_knob_find(axes[axis].knob);

	for (size_t i = 0; i < 2 && without && also[axis][i] && !differ(k, with, without); i++)
		k = oom_knob_find(also[axis][i]);
	for (size_t i = 0; without && k && !differ(k, with, without); i++)
		k = oom_knob_at(i);
	return k ? k->name : axes[axis].knob;
}

size_t search_smaller_states(const struct search_space *s)
{
	return s->optimizers.paged < 0 ? 1 : 3;
}

size_t search_other_states(const struct search_space *s, int64_t other[2])
{
	const struct oom_smaller_states *o = &s->optimizers;
	size_t n = 0;

	for (int i = 0; i < 2; i++) {
		const int64_t id = i ? o->whole : o->least;

		if (id >= 0 && other)
			other[n] = id;
		n += id >= 0;
	}
	return n;
}

size_t search_values(const struct search_space *s, enum search_axis axis)
{
	const struct oom_plan *a = s->asked;

	if (fixed(s, axis))
		return 1;
	switch (axis) {
	case SEQ: return lengths(s);
	case GPUS: return s->n_gpus;
	case PRECISION:
		return 1 + (a->precision == OOM_FP32) + (s->resorts && can_narrow_weights(s));
	case ATTN: return attentions(s, NULL);
	case LOSS: return losses(s) + (s->resorts && s->liger);
	case CKPT: return s->megatron || a->grad_ckpt > OOM_CKPT_FULL ? 3 : 2;
	case LORA: return s->allow & OOM_ALLOW_LORA && !oom_plan_adapted(a) && !s->megatron ? 3 : 1;
	case BATCH: return s->n_divisors;
	case LAYOUT: return s->resorts ? s->n_layouts : s->n_own;
	case OFFLOAD:
		return s->megatron		? 1 :
		       !s->resorts		? STATES_BY_TORCHAO :
		       a->offload_activations	? PLACES :
						  2 * PLACES;
	case OPTIMIZER:
		return s->megatron ? 1 : search_smaller_states(s) + (s->resorts ? search_other_states(s, NULL) : 0);
	case STEP: return a->gpus == 1 && !a->step_in_backward && !s->megatron ? 2 : 1;
	case SEQPAR: return s->megatron && !a->sp && a->gpus > 1 ? 2 : 1;
	case ALLOCATOR: return a->allocator == OOM_ALLOC_EXPANDABLE ? 1 : 2;
	case AXES: break;
	}
	return 1;
}

unsigned search_inexact(const struct search_space *s, const uint16_t v[OOM_SEARCH_AXES])
{
	unsigned set = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		if (!inexact[i].resort)
			set |= (unsigned)(v[inexact[i].axis] != 0) << i;
	/* 16-bit weights are graver than autocast */
	set |= (unsigned)search_narrow_weights(s, v[PRECISION]) << TO_16_BIT_WEIGHTS;
	set |= (unsigned)search_is_mixture(s, v[LAYOUT]) << TO_ANOTHER_FRAMEWORK;
	return set;
}

unsigned search_inexact_all(const struct search_space *s)
{
	unsigned set = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		set |= (unsigned)(s->resorts || !inexact[i].resort) << i;
	return set;
}

unsigned search_classes(unsigned set)
{
	unsigned classes = 0;

	for (int i = 0; i < SEARCH_INEXACT; i++)
		if (set >> i & 1)
			classes |= 1u << inexact[i].cls;
	return classes;
}
