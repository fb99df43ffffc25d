/* A config's own quantization_config: what transformers loads the weights as.
 *
 * Under adapters that is what is priced, where training through it is possible and modelled; else the
 * weights are counted as de-quantised, and that is said. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "families/model.h"
#include "oomplan/model.h"
#include "ops/ops.h"

static const struct oom_key *find(const struct oom_model *m, const char *key)
{
	char path[160];

	snprintf(path, sizeof(path), "%squantization_config%s%s", m->prefix, *key ? "." : "", key);
	return oom_keys_find(m->keys, path);
}

static bool is_true(const struct oom_model *m, const char *key)
{
	const struct oom_key *k = find(m, key);

	return k && k->type == OOM_KEY_BOOL && k->number > 0;
}

static bool has_word(const struct oom_model *m, const char *key, const char *word)
{
	const struct oom_key *k = find(m, key);

	return k && k->type == OOM_KEY_STRING && !strcmp(k->string, word);
}

/* 4 where nothing is said: the only width these kernels train with that is modelled. */
static bool four_bits(const struct oom_model *m, const char *key)
{
	const struct oom_key *k = find(m, key);

	return !k || (k->type == OOM_KEY_NUMBER && fabs(k->number - 4) < 0.5);
}

/* transformers/utils/quantization_config.py: bitsandbytes' 4 bit is fp4 unless it says nf4. */
static enum oom_base bitsandbytes(const struct oom_model *m)
{
	if (is_true(m, "load_in_8bit") || is_true(m, "_load_in_8bit"))
		return OOM_BASE_INT8;
	if (is_true(m, "load_in_4bit") || is_true(m, "_load_in_4bit"))
		return has_word(m, "bnb_4bit_quant_type", "nf4") ? OOM_BASE_NF4 : OOM_BASE_FP4;
	return OOM_BASE_PLAIN;
}

static enum oom_base gptq(const struct oom_model *m)
{
	const struct oom_key *k = find(m, "bits");

	if (k && k->type == OOM_KEY_NUMBER && fabs(k->number - 8) < 0.5)
		return OOM_BASE_GPTQ8;
	return four_bits(m, "bits") ? OOM_BASE_GPTQ : OOM_BASE_PLAIN;
}

static enum oom_base awq(const struct oom_model *m)
{
	return four_bits(m, "bits") ? OOM_BASE_AWQ : OOM_BASE_PLAIN;
}

static enum oom_base hqq(const struct oom_model *m)
{
	return four_bits(m, "quant_config.weight_quant_params.nbits") ? OOM_BASE_HQQ : OOM_BASE_PLAIN;
}

static const struct {
	const char *method;
	enum oom_base (*base)(const struct oom_model *m);       /* NULL: it cannot be trained through */
	const char *trained;    /* what is trained instead */
	const char *group;      /* the key that says how many elements of a row share a scale */
	/* Such files hold packed layers for the places of nn.Linear alone (transformers 5.12 integrations/awq.py
	 * replace_with_awq_linear), an expert's among them: where they load, experts are layers, and never stacks. */
	bool packs;
} methods[] = {
	{"bitsandbytes", bitsandbytes, NULL, NULL, false},
	{"gptq", gptq, NULL, "group_size", true},
	{"awq", awq, NULL, "group_size", true},
	{"hqq", hqq, NULL, "quant_config.weight_quant_params.group_size", false},
	/* their quantizers say is_trainable: False (transformers/quantizers/quantizer_X.py) */
	{"mxfp4", NULL, "Mxfp4Config(dequantize=True)", NULL, false},
	{"fp8", NULL, "FineGrainedFP8Config(dequantize=True)", NULL, false},
	{"compressed-tensors", NULL, "CompressedTensorsConfig(run_compressed=False)", NULL, false},
	{"fbgemm_fp8", NULL, "a checkpoint in 16 bit", NULL, false},
};

static size_t method_of(const struct oom_model *m)
{
	size_t i = 0;

	while (i < sizeof(methods) / sizeof(methods[0]) &&
	       !has_word(m, "quant_method", methods[i].method))
		i++;
	/* configs of before quant_method was written are bitsandbytes' */
	if (i == sizeof(methods) / sizeof(methods[0]) && !find(m, "quant_method") &&
	    (find(m, "load_in_4bit") || find(m, "load_in_8bit")))
		return 0;
	return i;
}

static bool is_quantised(const struct oom_model *m)
{
	const struct oom_key *k = find(m, "");

	return (k && k->type != OOM_KEY_NULL) || find(m, "quant_method") || find(m, "load_in_4bit") ||
	       find(m, "load_in_8bit");
}

/* A group of -1 (GPTQ: AutoGPTQ nn_modules/qlinear) or null (HQQ: hqq/core/quantize.py) is a whole row. */
static void settle_group(const struct oom_model *m, const char *key, enum oom_base base, struct oom_plan *p)
{
	const struct oom_key *k = key ? find(m, key) : NULL;
	const double said = !k ? 0 : k->type == OOM_KEY_NUMBER ? k->number : k->type == OOM_KEY_NULL ? -1 : 0;
	const int64_t group = said < 0 ? OOM_GROUP_OF_ROW :
			      said >= 1 && said < OOM_GROUP_OF_ROW ? (int64_t)said : 0;

	if (!p->base_group && group != oom_quantised_group(base))
		p->base_group = group;
}

void oom_model_settle_base(const struct oom_model *m, struct oom_plan *p)
{
	const size_t i = method_of(m);
	enum oom_base base;

	if (!is_quantised(m) || !oom_plan_adapted(p) || i == sizeof(methods) / sizeof(methods[0]) || !methods[i].base)
		return;
	base = methods[i].base(m);
	if (oom_plan_quantised(p) ? oom_plan_base(p) != base : base == OOM_BASE_PLAIN)
		return;
	if (methods[i].packs && m->arch.n_experts)
		p->moe_experts = OOM_EXPERTS_SEPARATE;
	settle_group(m, methods[i].group, base, p);
	if (oom_plan_quantised(p))
		return;
	p->base_weights = base;
	if (base == OOM_BASE_NF4 || base == OOM_BASE_FP4)
		p->double_quant = is_true(m, "bnb_4bit_use_double_quant");
}

bool oom_model_keep_base(const struct oom_model *m, struct oom_plan *p)
{
	const struct oom_plan asked = *p;

	if (!oom_plan_quantised(p))
		return false;
	p->base_weights = OOM_BASE_PLAIN;
	p->base_group = 0;
	oom_model_settle_base(m, p);
	if (oom_plan_quantised(p) && oom_plan_base(p) != oom_plan_base(&asked))
		return true;
	*p = asked;
	return false;
}

void oom_model_read_quantised(struct oom_model *m)
{
	const struct oom_key *k = find(m, "quant_method");
	const size_t i = method_of(m);
	const bool known = i < sizeof(methods) / sizeof(methods[0]);
	const char *name = known ? methods[i].method :
			   k && k->type == OOM_KEY_STRING ? k->string : "no quant_method";

	m->quantised[0] = 0;
	if (!is_quantised(m))
		return;
	snprintf(m->quantised, sizeof(m->quantised),
		 "the config holds a quantization_config (%.60s): weights are counted as --precision "
		 "stores them, as if de-quantised; %s%s", name,
		 known && methods[i].trained ? "what is stored so cannot be trained, but " :
		 known && methods[i].base(m) ? "with adapters (--lora-r 16) they are counted as loaded" :
					       "no adapters on such weights are modelled",
		 known && methods[i].trained ? methods[i].trained : "");
}

/* For bitsandbytes and HQQ transformers 5 quantises nn.Linear and leaves stacks of experts alone; what an older version
 * saved, or unsloth, has experts that are layers.  The config does not say which. */
static const char stacked[] = "the checkpoint's experts are counted as stacks in 16 bit, as transformers 5 saves them; one that was saved with "
			      "experts in 4 bit (transformers 4, unsloth) is --moe-experts separate";

const char *oom_model_stored_warning(const struct oom_model *m, const struct oom_plan *p)
{
	if (!oom_plan_quantised(p))
		return m->quantised;
	return is_quantised(m) && m->arch.n_experts && p->moe_experts == OOM_EXPERTS_FUSED ? stacked : "";
}
