/* A plan that two published sets of readings share.  Included after cmocka.h. */
#ifndef OOM_TESTS_LORA_OF_TWO_H
#define OOM_TESTS_LORA_OF_TWO_H

#include <string.h>

#include "oomplan/generations.h"
#include "oomplan/model.h"

static struct oom_plan lora_of_two(int64_t tokens)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_BF16;
	p.grad_ckpt = OOM_CKPT_FULL;
	p.micro_batch = 1;
	p.seq_len = tokens;
	p.engine = OOM_ENGINE_FSDP1;
	p.zero_stage = 3;
	p.gpus = 2;
	p.lora_r = 64;
	strcpy(p.lora_targets, "all-linear");
	p.lora_dropout = 0.1;
	p.adapter_fp32 = 0;
	p.kbit_prepare = 0;
	p.use_reentrant = OOM_REENTRANT_WRAPPED;
	p.transformers = OOM_VERSION(4, 38);
	p.torch = OOM_VERSION(2, 2);
	return p;
}

#endif
