/* Boxes: scenarios whose answers are reckoned by hand. */
#include "offers_case.h"

/* Is there a way to train it on count such cards (in a machine with any amount of host memory)? */
static bool fits(const char *model, const char *gpu, unsigned count, const char *const *words,
		 enum oom_class worst)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	struct oom_plan p = knobs(words);
	struct oom_box_query q = {0};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_boxes b;
	char text[200];
	bool yes;

	snprintf(text, sizeof(text),
		 "provider,instance,gpu,gpu_count,ondemand_usd_h\np,i,%s,%u,1\n", gpu, count);
	read_text(&o, "one.csv", text, OOM_OK, &err);
	assert_int_equal(o.n, 1);
	assert_int_equal(oom_keys_read_model(&keys, model, &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	if (p.lora_r && !p.lora_targets[0])
		snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", oom_model_lora_targets(m));
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	yes = b.fitting == 1 && b.items[0].plan->cls <= worst;
	oom_boxes_release(&b);
	oom_offers_release(&o);
	oom_model_free(m);
	oom_keys_release(&keys);
	return yes;
}

static void test_scenarios(void **state)
{
	static const char *const full[] = {"precision",	  "bf16", "grad-ckpt",	"full",
					   "micro-batch", "1",	  "grad-accum", "16",
					   "seq-len",	  "2048", NULL};
	static const char *const lora[] = {"precision",	  "bf16-amp", "grad-ckpt", "full",
					   "micro-batch", "1",	      "seq-len",   "1024",
					   "lora-r",	  "16",	      NULL};
	static const char *const qlora[] = {"precision",   "bf16-amp", "grad-ckpt", "full",
					    "micro-batch", "1",	       "seq-len",   "512",
					    "lora-r",	   "16",       "qlora",	    "1",
					    NULL};
	static const char *const small[] = {"precision", "amp-bf16", "micro-batch", "8",
					    "seq-len",	 "512",	     NULL};

	(void)state;
	/* 8 B bf16 Adam: 2 + 2 + 4 B = 64 GB beside activations: one 80 GB card, not one of 24
	 * without offload */
	assert_true(fits("Llama-3.1-8B", "H100-SXM5-80GB", 1, full, OOM_EXACT));
	assert_false(fits("Llama-3.1-8B", "RTX-4090", 1, full, OOM_NUMERICS));
	/* 8 B LoRA: 16 GB of frozen weights and little else: 24 GB do, 16 GB (14.6 GiB reported
	 * by a T4) do not */
	assert_true(fits("Llama-3.1-8B", "RTX-4090", 1, lora, OOM_EXACT));
	assert_false(fits("Llama-3.1-8B", "T4", 1, lora, OOM_EXACT));
	/* the QLoRA paper's claim (arXiv:2305.14314): 65 B on one 48 GB card; 70 B x 0.516 B =
	 * 35.6 GB; 24 GB cannot hold it */
	assert_true(fits("Llama-2-70B", "RTX-6000-Ada", 1, qlora, OOM_NUMERICS));
	assert_false(fits("Llama-2-70B", "RTX-4090", 1, qlora, OOM_NUMERICS));
	/* 70 B on 8 x 80 GB: 8 B per parameter is 69 GB per card, too tight beside what is gathered;
	 * with an 8-bit optimizer (52 GB) or offload it fits */
	assert_true(fits("Llama-2-70B", "H100-SXM5-80GB", 8, full, OOM_PLACEMENT));
	assert_false(fits("Llama-2-70B", "H100-SXM5-80GB", 1, full, OOM_NUMERICS));
	/* GPT-2 small: 124 M x 18 B = 2.2 GB and logits of 8 x 512 x 50257 x 4 B = 0.8 GB a
	 * copy: a T4 */
	assert_true(fits("GPT-2", "T4", 1, small, OOM_NUMERICS));
	/* Mixtral-8x7B LoRA: 46.7 B x 2 B = 93 GB: not one 80 GB card; two share it under ZeRO-3 */
	assert_false(fits("Mixtral-8x7B", "A100-SXM4-80GB", 1, lora, OOM_NUMERICS));
	assert_true(fits("Mixtral-8x7B", "A100-SXM4-80GB", 2, lora, OOM_PLACEMENT));
	/* BERT-large: 335 M x 18 B = 6 GB: a 16 GB consumer card */
	assert_true(fits("BERT-large", "RTX-4060-Ti-16GB", 1, small, OOM_NUMERICS));
}

/* 46.7 B in 16 bit are 4 B per parameter for weights and gradients, 174 GiB: two nodes of four T4 (8
 * x 14.6 = 117 GiB) cannot hold them, and offloading them too asks for more than the 220 GiB of
 * these hosts; four nodes (233 GiB) can, with 2 B per parameter of 8-bit state beside them in the
 * hosts (22 GiB each, and 87 to gather a checkpoint).  As few nodes as do are taken of those allowed; --nodes
 * asks for exactly so many.  Spot and on-demand prices stand beside each other, for all nodes. */
static void test_nodes(void **state)
{
	static const char *const full[] = {"precision",	  "bf16", "grad-ckpt",	"full",
					   "micro-batch", "1",	  "grad-accum", "64",
					   "seq-len",	  "512",  NULL};
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	struct oom_plan p = knobs(full);
	struct oom_box_query q = {.max_nodes = 8};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_boxes b;
	int64_t fewest;

	(void)state;
	read_text(&o, "one.csv",
		  "provider,instance,gpu,gpu_count,ondemand_usd_h,spot_usd_h,host_ram_gib,network_gbps\np,i,A4000,"
		  "4,10,4,220,100\n",
		  OOM_OK, &err);
	assert_int_equal(oom_keys_read_model(&keys, "Mixtral-8x7B", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	assert_int_equal(b.fitting, 1);
	fewest = b.items[0].nodes;
	assert_in_range(fewest, 3, 7);
	assert_true(b.items[0].usd_h == 10.0 * (double)fewest);
	/* a million tokens cost by the prices, four to ten */
	assert_true(fabs(b.items[0].spot_usd_per_mtokens / b.items[0].ondemand_usd_per_mtokens -
			 0.4) < 1e-9);
	oom_boxes_release(&b);
	/* one fewer does not do, and is not passed over */
	q.max_nodes = fewest - 1;
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	assert_int_equal(b.fitting, 0);
	oom_boxes_release(&b);
	q.nodes = fewest + 1;
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	assert_int_equal(b.n, 1);
	assert_int_equal(b.items[0].nodes, fewest + 1);
	oom_boxes_release(&b);
	oom_offers_release(&o);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* A run that evaluates needs a machine on which the evaluation fits: 64 rows of 4096 tokens with 128,256 logits
 * of 4 bytes are 125 GiB by themselves, on a card of 48; the batch of the evaluation is lowered until it
 * does, and with nothing said it stays. */
static void test_evaluation(void **state)
{
	static const char *const lora[] = {"precision",	  "bf16-amp", "lora-r",	    "16",
					   "micro-batch", "1",	      "seq-len",    "4096",
					   "eval-batch",  "64",	      "evaluates",  "yes", NULL};
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	struct oom_plan p = knobs(lora);
	struct oom_box_query q = {0};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};

	(void)state;
	read_text(&o, "one.csv",
		  "provider,instance,gpu,gpu_count,ondemand_usd_h,spot_usd_h,host_ram_gib\np,i,L40S,1,1,1,200\n",
		  OOM_OK, &err);
	assert_int_equal(oom_keys_read_model(&keys, "Llama-3.2-1B", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	for (int said = 0; said < 2; said++) {
		struct oom_evaluator *ev = oom_evaluator_new();
		struct oom_boxes b;

		p.evaluates = said ? OOM_EVALUATES_YES : OOM_EVALUATES_UNSAID;
		assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
		assert_int_equal(b.fitting, 1);
		if (said)
			assert_in_range(b.items[0].plan->plan.eval_batch, 1, 32);
		else
			assert_int_equal(b.items[0].plan->plan.eval_batch, 64);
		assert_true(oom_evaluation_fits(ev, m, &b.items[0].plan->plan, (uint64_t)45 << 30));
		oom_boxes_release(&b);
		oom_evaluator_free(ev);
	}
	oom_offers_release(&o);
	oom_model_free(m);
	oom_keys_release(&keys);
}

/* 1 B parameters in bf16 with ZeRO-2 offload on 4 GPUs of a node: 16 B per parameter in host
 * memory, 3 GiB a process. */
static void test_host(void **state)
{
	struct oom_plan p = oom_plan_default();
	struct oom_eval e = {.total_params = 1000000000,
			     .trainable_params = 1000000000,
			     .opt_bytes = 8,
			     .host_pinned_bytes = 1000000000,
			     .host_pageable_bytes = 3000000000};
	struct oom_host_need n;

	(void)state;
	p.gpus = 4;
	p.precision = OOM_BF16;
	p.zero_stage = 2;
	p.engine = OOM_ENGINE_DEEPSPEED;
	n = oom_host_need(&p, &e);
	assert_int_equal(n.pinned + n.pageable, 16000000000);
	assert_int_equal(n.processes, (uint64_t)12 << 30);
	/* 2 GB is less than a shard: four ranks read it each */
	assert_int_equal(n.loading, 8000000000);
	assert_int_equal(n.checkpoint, 14000000000);            /* 2 + 4 + 8 B per parameter */
	assert_int_equal(n.disk_peak, 3 * 14000000000 + 4000000000);
	p.low_cpu_mem = 0;
	assert_int_equal(oom_host_need(&p, &e).loading, 8000000000);
}

/* A calibration that doubles every prediction: what fits a card of 80 GB must be predicted at half
 * of it.  8 B with Adam in bf16 are 64 GB: one card without, two with. */
static void test_calibrated(void **state)
{
	static const char *const full[] = {"precision", "bf16", "grad-ckpt", "full", "micro-batch", "1",
					   "seq-len", "512", NULL};
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	struct oom_plan p = knobs(full);
	struct oom_calibration c;
	struct oom_box_query q = {.max_nodes = 1, .calibration = &c};
	struct oom_model *m = NULL;
	struct oom_keys keys = {0};
	struct oom_boxes b;
	uint64_t most = 0;

	(void)state;
	assert_int_equal(oom_calibration_default(&c, &err), OOM_OK);
	for (int i = 0; i < OOM_TERMS; i++)
		if (!oom_term_is_bytes((enum oom_term)i))
			c.term[i].value = i < OOM_SCALES ? 2 : 1;
	read_text(&o, "cal.csv",
		  "provider,instance,gpu,gpu_count,ondemand_usd_h,host_ram_gib\n"
		  "p,one,H100-SXM5-80GB,1,2,2000\np,four,H100-SXM5-80GB,4,8,2000\n",
		  OOM_OK, &err);
	assert_int_equal(oom_keys_read_model(&keys, "Llama-3.1-8B", &err), OOM_OK);
	assert_int_equal(oom_model_new(&m, &keys, &err), OOM_OK);
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	assert_true(b.fitting > 0);
	for (size_t i = 0; i < b.fitting; i++) {
		/* twice the prediction is within the card, whatever changes that took */
		assert_true(2 * (double)b.items[i].plan->used_bytes < 1.06 * 80 * 1073741824.0);
		assert_true(!(b.items[i].plan->plan.margin < p.margin ||
			      b.items[i].plan->plan.margin > p.margin));
	}
	oom_boxes_release(&b);
	q.calibration = NULL;
	assert_int_equal(oom_boxes_find(&o, m, &p, &q, &b, &err), OOM_OK);
	for (size_t i = 0; i < b.fitting; i++)
		most = b.items[i].plan->used_bytes > most ? b.items[i].plan->used_bytes : most;
	assert_true(2 * (double)most > 1.06 * 80 * 1073741824.0);
	oom_boxes_release(&b);
	oom_model_free(m);
	oom_keys_release(&keys);
	oom_offers_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scenarios),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_evaluation),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_calibrated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
