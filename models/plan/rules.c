/* Rules between knobs: one row each, and the one place that applies them. */
#include "oomplan/rules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "plan/defaults.h"
#include "plan/open_rules.h"

/* ---- relations that take arithmetic ---- */

static bool nodes_are_full(const struct oom_plan *p)
{
	return !p->gpus_per_node || p->gpus == p->nodes * p->gpus_per_node;
}

static bool gpus_divide(const struct oom_plan *p)
{
	return p->gpus % p->nodes == 0;
}

static bool batch_holds(const struct oom_plan *p)
{
	return !p->global_batch || p->micro_batch <= p->global_batch;
}

#define BIT(choice) ((uint64_t)1 << (choice))
/* The engines that have a trait, as bits. */
#define IF_PLAIN(id, traits) | (((traits) & OOM_E_PLAIN) ? BIT(id) : 0)
#define IF_ZERO(id, traits) | (((traits) & OOM_E_ZERO) ? BIT(id) : 0)
#define IF_FSDP(id, traits) | (((traits) & OOM_E_FSDP) ? BIT(id) : 0)
#define IF_RANKS(id, traits) | (((traits) & OOM_E_RANKS) ? BIT(id) : 0)
#define IF_CORE(id, traits) | (((traits) & OOM_E_CORE) ? BIT(id) : 0)
#define IF_PIPE(id, traits) | (((traits) & OOM_E_PIPE) ? BIT(id) : 0)
#define IF_MIXES(id, traits) | (((traits) & OOM_E_MIXES) ? BIT(id) : 0)
#define IF_IN_TURN(id, traits) | (((traits) & OOM_E_IN_TURN) ? BIT(id) : 0)
#define IF_AUTOCAST(id, traits) | (((traits) & OOM_E_AUTOCAST) ? BIT(id) : 0)
#define IF_HOOKED(id, traits) | (((traits) & OOM_E_HOOKED) ? BIT(id) : 0)
#define IF_PURE(id, traits) | (((traits) & OOM_E_PURE) ? BIT(id) : 0)
#define ENGINES(trait) (UINT64_C(0) OOM_ENGINE_TRAITS(IF_##trait))

static bool ranks_share(const struct oom_plan *p)
{
	/* DeepSpeed runs every stage on one GPU, of which it makes a partition */
	return p->gpus > 1 || ENGINES(ZERO) >> p->engine & 1 ||
	       p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE;
}

/* FP8 units came with Ada and Hopper (NVIDIA's tables of compute capabilities). */
static bool has_fp8(const struct oom_plan *p)
{
	return p->compute_capability <= 0 || p->compute_capability >= 8.9;
}

static bool degrees_divide(const struct oom_plan *p)
{
	return p->gpus % (p->tp * p->pp * p->cp) == 0;
}

/* What a rule is about first is looked at as a range: engines of such a trait stand next to each other. */
#define FIRST(set) ((uint64_t)__builtin_ctzll(set))
#define SPAN(set) ((uint64_t)__builtin_popcountll(set) - 1)
#define IS_RANGE(set) ((set) >> FIRST(set) == BIT(SPAN(set) + 1) - 1)
static_assert(IS_RANGE(ENGINES(RANKS)) && IS_RANGE(ENGINES(PIPE)) && IS_RANGE(ENGINES(MIXES)) &&
		      IS_RANGE(ENGINES(IN_TURN)) && IS_RANGE(ENGINES(PURE)),
	      "rules speak of these engines as of a range");

static bool splits_large(const struct oom_plan *p)
{
	return p->max_split > 20;
}

static bool has_tokens(const struct oom_plan *p)
{
	return p->virtual_tokens > 0;
}

static bool has_virtual_tokens(const struct oom_plan *p)
{
	return oom_plan_prompted(p) || oom_plan_attended(p);
}

static bool trains_base(const struct oom_plan *p)
{
	return !oom_plan_adapted(p);
}

/* ---- the rows ---- */

#define FOUR_BIT (BIT(OOM_BASE_NF4) | BIT(OOM_BASE_FP4) | BIT(OOM_BASE_LIGHTNING) | BIT(OOM_BASE_LITGPT))
#define IN_GROUPS (BIT(OOM_BASE_GPTQ) | BIT(OOM_BASE_GPTQ8) | BIT(OOM_BASE_AWQ) | BIT(OOM_BASE_HQQ))
#define PACKED (BIT(OOM_BASE_GPTQ) | BIT(OOM_BASE_GPTQ8) | BIT(OOM_BASE_AWQ))
/* losses that Megatron-core has in some form of its own */
#define EVERYWHERE (BIT(OOM_LOSS_PLAIN) | BIT(OOM_LOSS_FUSED) | BIT(OOM_LOSS_SLICED))
/* losses of trainers that give the model no labels: transformers before 4.46 upcast the logits all the same */
#define WITHOUT_LABELS (BIT(OOM_LOSS_PLAIN) | BIT(OOM_LOSS_SLICED))
/* and those that a loop of somebody else's takes its log-probabilities of: an fp32 copy, or the logits as they are */
#define BY_LOOPS (WITHOUT_LABELS | BIT(OOM_LOSS_OUTSIDE) | BIT(OOM_LOSS_OWN_TYPE) | BIT(OOM_LOSS_FLASH))
#define LOOPED (BIT(OOM_METHOD_SFT) | OOM_METHODS_OF_PREFERENCES)
#define BY_TOKENS (BIT(OOM_LOSS_CHUNKED_NLL) | BIT(OOM_LOSS_TILED))
#define COMPARING (BIT(OOM_METHOD_DPO) | BIT(OOM_METHOD_KTO) | BIT(OOM_METHOD_GRPO) | \
		   BIT(OOM_METHOD_PPO) | BIT(OOM_METHOD_ONLINE_DPO) | BIT(OOM_METHOD_XPO) | \
		   BIT(OOM_METHOD_NASH_MD) | BIT(OOM_METHOD_PPO_APART))
/* of answers that the trained model gave */
#define ONLINE \
	(BIT(OOM_METHOD_GRPO) | BIT(OOM_METHOD_PPO) | BIT(OOM_METHOD_ONLINE_DPO) | BIT(OOM_METHOD_XPO) | \
	 BIT(OOM_METHOD_NASH_MD))
#define AT(field) offsetof(struct oom_plan, field)
#define IS(field, v) {AT(field), (uint64_t)(v), 0, 0}
#define IS_NOT(field, v) {AT(field), (uint64_t)(v) + 1, UINT64_MAX - 1, 0}
#define ABOVE(field, v) {AT(field), (uint64_t)(v) + 1, INT64_MAX - (uint64_t)(v) - 1, 0}
#define ABOVE_REAL(field, v) ABOVE(field, v##_AS_BITS)
#define AMONG(field, set) {AT(field), 0, 0, set}
/* an engine that ... */
#define THAT(trait) AMONG(engine, ENGINES(trait))
#define NOT_THAT(trait) AMONG(engine, ~ENGINES(trait))
/* the same of a rule's first condition */
#define ENGINE_THAT(trait) {AT(engine), FIRST(ENGINES(trait)), SPAN(ENGINES(trait)), 0}
/* its degrees of parallelism are more than data parallelism */
#define WITH_DEGREES AMONG(engine, ENGINES(RANKS) | ENGINES(MIXES))
/* and of context and expert parallelism among them */
#define WITH_CONTEXT AMONG(engine, ENGINES(CORE) | ENGINES(MIXES))
/* whose ranks and GPUs run parts of one forward pass */
#define OF_WHOLE_CHAIN AMONG(engine, ENGINES(RANKS) | ENGINES(IN_TURN))
#define ANY {0, 0, UINT64_MAX, 0}
#define AMONG_PROMPTS \
	{AT(peft_type), OOM_ADAPTER_PROMPT, OOM_ADAPTER_PREFIX - OOM_ADAPTER_PROMPT, 0}

/* 0.0 and 1.0 in IEEE 754 */
#define ZERO_AS_BITS 0
#define ONE_AS_BITS 0x3ff0000000000000

#define NEEDS(...) ANY, false, __VA_ARGS__, NULL, false
#define EXCLUDES(...) ANY, true, __VA_ARGS__, NULL, false
/* The knob has no effect without the other one. */
#define WITHOUT_EFFECT_UNLESS(...) ANY, false, __VA_ARGS__, NULL, true
/* Under another condition. */
#define AND_EXCLUDES(cond, ...) cond, true, __VA_ARGS__, NULL, false
#define AND_NEEDS(cond, ...) cond, false, __VA_ARGS__, NULL, false
/* ... and the knob has no effect where it does not hold */
#define CALCULATES_IDLE(fn) ANY, false, ANY, fn, true
#define CALCULATES(fn) ANY, false, ANY, fn, false
#define AND_CALCULATES(cond, fn) cond, false, ANY, fn, false

/* adapters of most kinds come with a size, lora-r; some have none */
#define WITH_ADAPTERS ANY, false, ABOVE(lora_r, 0), oom_plan_adapted, false
#define IDLE_WITHOUT_ADAPTERS ANY, false, ABOVE(lora_r, 0), oom_plan_adapted, true
#define WITHOUT_ADAPTERS ANY, true, ABOVE(lora_r, 0), trains_base, false

#define ADAPTERS "; --lora-r 16 trains adapters"
#define PARALLEL \
	"tensor, pipeline, context and expert parallelism are Megatron's and torchtitan's: --engine " \
	"megatron or fsdp2"
#define LAID_OUT "how layers lie on pipeline stages is Megatron's: --engine megatron"
#define MEGATRONS(what) (what " is Megatron's: --engine megatron")
#define ONE_PROCESS \
	"engine device-map is one process on the GPUs of one node (64 at most): no ZeRO, no " \
	"offload, no second node"
#define STREAMED \
	"offload-gradients is torchao's CPUOffloadOptimizer: --engine hf --offload-optimizer cpu"
#define NO_OFFLOAD "engine megatron: offload is not modelled; use deepspeed or fsdp2"
#define NO_FREEZING "engine megatron: frozen parts are not modelled; use hf, deepspeed or fsdp2"
#define BASE_IS_FROZEN \
	"with adapters all of the base is frozen: freeze, train and train-last choose what trains " \
	"without; --lora-targets and --exclude-modules choose among adapters"
#define NO_LORA "engine megatron-deepspeed: LoRA is not modelled; use hf, deepspeed, fsdp2 or megatron"
#define NO_FEW_BITS "engine megatron: a base in few bits is not modelled; use hf, deepspeed or fsdp2"
#define NO_OTHER_ADAPTERS "engine megatron: of adapters LoRA alone is modelled; use hf, deepspeed or fsdp2"
#define BY_ENGINE "offload needs --engine deepspeed, fsdp1 or fsdp2"
#define BY_STAGE "offload needs a ZeRO stage (--zero 1, 2 or 3)"
#define ALL_OR_NOTHING "FSDP offloads everything to the CPU or nothing: --offload-params cpu"
#define HYBRID "hybrid-shard is FSDP's HYBRID_SHARD: --zero 3 on two nodes or more"

/* A plan that breaks several hears of the first: what chooses the engine stands before what the
 * engine then lacks. */
static const struct oom_rule rules[] = {
#include "plan/rule_list.h"
};

enum { N_RULES = sizeof(rules) / sizeof(rules[0]) };

const struct oom_rule *oom_rule_at(size_t i)
{
	return i < N_RULES ? &rules[i] : NULL;
}

/* ---- their application ---- */

static inline bool within(const struct oom_plan *p, const struct oom_condition *c)
{
	uint64_t n;

	memcpy(&n, (const char *)p + c->offset, sizeof(n));
	return n - c->from <= c->span;
}

static bool holds(const struct oom_plan *p, const struct oom_condition *c)
{
	uint64_t n;

	memcpy(&n, (const char *)p + c->offset, sizeof(n));
	return c->among ? n < 64 && c->among >> n & 1 : within(p, c);
}

/* Of a rule whose `when` holds. */
static bool broken(const struct oom_rule *r, const struct oom_plan *p)
{
	if (!holds(p, &r->also))
		return false;
	return r->right ? !r->right(p) : holds(p, &r->other) == r->excludes;
}

enum { WORDS = (N_RULES + 63) / 64 };

/* Of the rules [64 * word, 64 * word + 64) those whose `when` holds, as bits.  Few do in any plan,
 * and a sweep asks millions of times: all are looked at without a branch, which takes a twentieth of
 * an evaluation. */
static uint64_t in_question(const struct oom_plan *p, size_t word)
{
	const size_t first = 64 * word, end = first + 64 < N_RULES ? first + 64 : N_RULES;
	uint64_t bits = 0;

	for (size_t i = first; i < end; i++)
		bits |= (uint64_t)within(p, &rules[i].when) << (i - first);
	return bits;
}

bool oom_rule_concerns(const struct oom_rule *r, const struct oom_option *k)
{
	const struct oom_condition *all[] = {&r->when, &r->also, &r->other};
	char name[60];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if ((all[i]->among || all[i]->span != UINT64_MAX) && all[i]->offset == k->offset)
			return true;
	/* what arithmetic is about stands in the sentence */
	snprintf(name, sizeof(name), "{%s}", k->name);
	return strstr(r->sentence, name) != NULL;
}

const struct oom_rule *oom_plan_broken(const struct oom_plan *plan, const struct oom_option *open)
{
	for (size_t word = 0; word < WORDS; word++) {
		for (uint64_t bits = in_question(plan, word); bits; bits &= bits - 1) {
			const struct oom_rule *r = &rules[64 * word + (size_t)__builtin_ctzll(bits)];

			if (broken(r, plan) && !(open && oom_rule_concerns(r, open)))
				return r;
		}
	}
	return NULL;
}

/* ---- what is left open while only sizes change ---- */

bool oom_is_size(size_t offset)
{
	static const size_t sizes[] = {AT(micro_batch), AT(grad_accum), AT(seq_len), AT(optimizer),
				       AT(compute_capability)};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (offset == sizes[i])
			return true;
	return false;
}

static bool asks_size(const struct oom_condition *c)
{
	return (c->among || c->span != UINT64_MAX) && oom_is_size(c->offset);
}

bool oom_rules_left_open(const struct oom_plan *plan, struct oom_open_rules *open)
{
	static_assert(N_RULES <= UINT8_MAX, "numbers of rules are bytes");
	open->n = 0;
	for (size_t i = 0; i < N_RULES; i++) {
		const struct oom_rule *r = &rules[i];
		const bool when = asks_size(&r->when), also = asks_size(&r->also);

		if ((!when && !holds(plan, &r->when)) || (!also && !holds(plan, &r->also)) ||
		    (!when && !also && !r->right && !asks_size(&r->other)))
			continue;
		if (open->n == sizeof(open->rule))
			return false;
		open->rule[open->n++] = (uint8_t)i;
	}
	return true;
}

bool oom_open_rules_hold(const struct oom_open_rules *open, const struct oom_plan *plan)
{
	for (size_t i = 0; i < open->n; i++) {
		const struct oom_rule *r = &rules[open->rule[i]];

		if (within(plan, &r->when) && broken(r, plan))
			return false;
	}
	return true;
}

/* ---- in words ---- */

/* The sentence with the knobs' values in place of their names in braces. */
static void fill_in(const struct oom_plan *p, const char *sentence, char *buf, size_t size)
{
	size_t used = 0;

	for (const char *at = sentence; *at && used + 1 < size;) {
		const size_t len = *at == '{' ? strcspn(at, "}") : 0;
		char name[60], value[OOM_VALUE_SIZE];
		const struct oom_option *k = NULL;

		snprintf(name, sizeof(name), "%.*s", len ? (int)len - 1 : 0, at + 1);
		k = len ? oom_knob_find(name) : NULL;
		if (!k) {
			buf[used++] = *at++;
			continue;
		}
		oom_plan_get(p, k, value, sizeof(value));
		for (const char *v = value; *v && used + 1 < size; v++)
			buf[used++] = *v;
		at += len + 1;
	}
	buf[used] = 0;
}

enum oom_status oom_plan_check_open(const struct oom_plan *plan, const struct oom_option *open,
				    struct oom_error *err)
{
	const struct oom_rule *r = oom_plan_broken(plan, open);
	char text[400];

	if (!r)
		return OOM_OK;
	fill_in(plan, r->sentence, text, sizeof(text));
	return oom_error_set(err, OOM_ERR_INVALID, "%s", text);
}

enum oom_status oom_plan_check(const struct oom_plan *plan, struct oom_error *err)
{
	return oom_plan_check_open(plan, NULL, err);
}

/* What is set back may have been what another knob needed: once more until all is quiet. */
void oom_plan_relax(struct oom_plan *plan)
{
	struct oom_plan plain;
	bool again = true, made = false;

	while (again) {
		again = false;
		for (size_t i = 0; i < N_RULES; i++) {
			const size_t at = rules[i].when.offset;

			/* most are not: that is asked first */
			if (!rules[i].idle || !within(plan, &rules[i].when) || !broken(&rules[i], plan))
				continue;
			if (!made)
				plain = oom_plan_default();
			made = again = true;
			memcpy((char *)plan + at, (const char *)&plain + at, sizeof(int64_t));
		}
	}
}
