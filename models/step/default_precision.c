/* What a plan trains in where nobody says it.
 *
 * transformers 5: dtype=None of from_pretrained is "auto", which is the config's dtype, and without one that
 * of the checkpoint's first floating tensor, which a config.json does not tell (modeling_utils.py
 * _get_dtype).  Before 5.0 it was fp32; what is left of a model beside bitsandbytes' 4 bit is another matter
 * (oom_plan_four_bit).  Engines that load no such model have defaults of their own. */
#include <stdio.h>
#include <string.h>

#include "families/model.h"
#include "oomplan/generations.h"
#include "oomplan/model.h"
#include "oomplan/option.h"
#include "step/engines.h"

/* Engines that mix tensor, pipeline, context and expert parallelism with their sharding have a default of
 * their own for that. */
static enum oom_precision of_engine(const struct oom_plan *p)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)p->engine);
	const bool mixes = p->tp > 1 || p->pp > 1 || p->cp > 1 || p->ep > 1;

	/* Megatron-Bridge, whose adapters they are, trains them in 16 bit (recipes/common.py _peft_common) */
	if (oom_plan_adapted(p) && oom_engine_core_layers(p))
		return OOM_BF16;
	return (enum oom_precision)(mixes ? e->mixed_precision : e->precision);
}

bool oom_plan_settle_on_card(struct oom_plan *p)
{
	static const int64_t halves[][2] = {
		{OOM_BF16, OOM_FP16}, {OOM_AMP_BF16, OOM_AMP_FP16}, {OOM_BF16_AMP, OOM_FP16_AMP}};

	for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++)
		if (p->precision_by_card && p->precision == halves[i][0] && oom_capability(p) < 8) {
			p->precision = halves[i][1];
			return true;
		}
	return false;
}

bool oom_plan_precision_open(const struct oom_plan *p)
{
	return p->precision == OOM_AUTO_PRECISION || p->precision == OOM_AUTO_AMP;
}

/* What Trainer(bf16=True) computes in over weights that were loaded so.  Under FSDP's mixed precision
 * accelerate takes trained ones to fp32 (accelerator.py prepare_model, utils/fsdp_utils.py
 * fsdp2_prepare_model). */
static enum oom_precision under_autocast(const struct oom_plan *p, enum oom_precision loaded)
{
	const bool raised = oom_engine_of(p)->wraps_units && p->zero_stage && !oom_plan_adapted(p);

	return loaded == OOM_FP32 || raised ? OOM_AMP_BF16 : OOM_BF16_AMP;
}

void oom_model_settle_precision(const struct oom_model *m, struct oom_plan *p, char told[200])
{
	const bool open = oom_plan_precision_open(p), autocast = p->precision == OOM_AUTO_AMP;
	const enum oom_precision own = open ? of_engine(p) : OOM_FP32;
	char name[OOM_VALUE_SIZE];
	bool older;

	if (told)
		*told = 0;
	if (oom_plan_settle_on_card(p) && told) {
		oom_plan_get(p, oom_knob_find("precision"), name, sizeof(name));
		snprintf(told, 200, "%.20s: the files take bf16 where the card has it, and this one has not", name);
	}
	if (!open)
		return;
	p->precision = OOM_AUTO_PRECISION;      /* what weights are loaded in; autocast comes over that */
	/* transformers before 5: fp32 */
	older = oom_plan_aged(p, "precision");
	p->precision_unasked = !autocast;
	if (own != OOM_AUTO_PRECISION)
		p->precision = own;
	else if (older || m->stored == OOM_AUTO_PRECISION)
		p->precision = OOM_FP32;
	else
		/* quantizer_awq.py update_dtype: its kernels have no bf16 */
		p->precision = oom_plan_base(p) == OOM_BASE_AWQ && m->stored == OOM_BF16 ? OOM_FP16 : m->stored;
	if (autocast)
		/* engines of their own make of it what they do */
		p->precision = own == OOM_AUTO_PRECISION ? under_autocast(p, (enum oom_precision)p->precision) :
							   OOM_AMP_BF16;
	if (!told)
		return;
	oom_plan_get(p, oom_knob_find("precision"), name, sizeof(name));
	snprintf(told, 200, "%.20s %s: %s", name, autocast ? "for bf16=True" : "by default",
		 own != OOM_AUTO_PRECISION ? autocast ? "the engine mixes by itself" : "the engine's own default" :
		 older ?
					     "transformers before 5 loads fp32 unless told otherwise" :
		 m->stored == OOM_AUTO_PRECISION ?
					     "the config names no dtype (transformers 5 then takes the checkpoint's: --precision)" :
					     "transformers 5 loads weights in the config's own dtype");
}
