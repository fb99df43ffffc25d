/* Image classifiers: published and built parameter counts, measured peaks, inconsistent configs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "priced.h"

static int64_t named(const char *optimizer)
{
	for (size_t i = 0;; i++)
		if (!strcmp(oom_knob_find("optimizer")->choice(i)->name, optimizer))
			return (int64_t)i;
}

static struct oom_plan plan_of(int64_t batch)
{
	struct oom_plan p = oom_plan_default();

	p.micro_batch = batch;
	p.precision = OOM_BF16;
	p.attn = OOM_ATTN_EAGER;
	p.grad_ckpt = OOM_CKPT_NONE;
	p.optimizer = named("adamw");
	return p;
}

/* ImageNet classifiers as published: torchvision's model table (ResNet-50, ConvNeXt-T, Swin-T,
 * ViT-B/16, MobileNet v2, EfficientNet-B0), timm's results table (the others). */
static void published_counts(void **state)
{
	static const struct {
		const char *json;
		uint64_t params;
	} cases[] = {
		{"{\"model_type\":\"resnet\",\"num_labels\":1000}", 25557032},
		{"{\"model_type\":\"convnext\",\"num_labels\":1000}", 28589128},
		{"{\"model_type\":\"swin\",\"num_labels\":1000}", 28288354},
		{"{\"model_type\":\"vit\",\"num_labels\":1000}", 86567656},
		{"{\"model_type\":\"mobilenet_v2\",\"num_labels\":1000}", 3504872},
		{"{\"model_type\":\"efficientnet\",\"num_labels\":1000,\"width_coefficient\":1.0,\"depth_coefficient\":1.0,"
		 "\"hidden_dim\":1280,\"image_size\":224}", 5288548},
		{"{\"model_type\":\"mobilevit\",\"num_labels\":1000}", 5578632},
		{"{\"model_type\":\"mobilevitv2\",\"num_labels\":1000}", 4901841},
		{"{\"model_type\":\"pvt_v2\",\"num_labels\":1000}", 3666760},
		{"{\"model_type\":\"poolformer\",\"num_labels\":1000}", 11915176},
		{"{\"model_type\":\"convnextv2\",\"num_labels\":1000}", 28635496},
		{"{\"model_type\":\"cvt\",\"num_labels\":1000}", 19997480},
	};
	const struct oom_plan p = plan_of(1);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_eval e = must(cases[i].json, &p);

		if (e.total_params != cases[i].params || e.trainable_params != cases[i].params)
			fail_msg("%s: %llu parameters", cases[i].json,
				 (unsigned long long)e.total_params);
	}
}

/* The default configuration of each class with two labels, built on the meta device with
 * transformers 5.12 (AutoModelForImageClassification.from_config). */
static void default_configurations(void **state)
{
	static const struct {
		const char *type;
		uint64_t params;
	} cases[] = {
		{"beit", 85658114}, {"bit", 23504450}, {"clip", 87457538}, {"data2vec-vision", 85658114}, {"dinov2", 85728770},
		{"dinov2_with_registers", 85824002}, {"donut-swin", 27519356}, {"efficientnet", 63792082}, {"focalnet", 27659654},
		{"hgnet_v2", 13557474}, {"hiera", 50757506}, {"metaclip_2", 87457538}, {"mobilenet_v1", 3209026}, {"pvt", 12717314},
		{"regnet", 19559834}, {"segformer", 3319906}, {"siglip", 92885762}, {"siglip2", 92931842}, {"swiftformer", 3034244},
		{"swinv2", 27579692}, {"vit_msn", 85800194}, {"deit", 85801730}, {"ijepa", 85798658},
	};
	const struct oom_plan p = plan_of(1);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char json[80];
		struct oom_eval e;

		snprintf(json, sizeof(json), "{\"model_type\":\"%s\",\"num_labels\":2}",
			 cases[i].type);
		e = must(json, &p);
		if (e.total_params != cases[i].params)
			fail_msg("%s: %llu parameters, %llu expected", cases[i].type,
				 (unsigned long long)e.total_params,
				 (unsigned long long)cases[i].params);
	}
}

/* Peaks of a full step in bf16 with AdamW, two images, measured with the harness beside the truth
 * data (every allocation of transformers 5.12's code, torch 2.14).  ConvNeXt's backward peak is
 * the copy of a channels-last weight gradient. */
static void measured_peaks(void **state)
{
	static const struct {
		const char *json;
		int attn;
		uint64_t eval, fwd1, bwd1, opt1, bwd2;
	} cases[] = {
		{"{\"model_type\":\"convnext\"}", OOM_ATTN_EAGER, 68314112, 165301248, 192884736, 278948864, 304223232},
		{"{\"model_type\":\"resnet\"}", OOM_ATTN_EAGER, 59019264, 135201792, 162331136, 235917312, 256399872},
		{"{\"model_type\":\"segformer\"}", OOM_ATTN_EAGER, 12306432, 45843456, 47810560, 33969664, 61157376},
		{"{\"model_type\":\"swinv2\",\"drop_path_rate\":0}", OOM_ATTN_EAGER, 75611136, 186848768, 210781184, 276785664,
		 321156096},
		{"{\"model_type\":\"beit\"}", OOM_ATTN_SDPA, 179181568, 304803840, 346787840, 857186304, 689421312},
		{"{\"model_type\":\"clip\"}", OOM_ATTN_SDPA, 177976320, 212942848, 350585856, 875168768, 700410880},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = plan_of(2);
		const uint64_t want[] = {cases[i].eval, cases[i].fwd1, cases[i].bwd1, cases[i].opt1,
					 cases[i].bwd2};
		const enum oom_phase phase[] = {OOM_PHASE_EVAL, OOM_PHASE_FWD1, OOM_PHASE_BWD1,
						OOM_PHASE_OPT1, OOM_PHASE_BWD2};
		struct oom_eval e;

		p.attn = cases[i].attn;
		e = must(cases[i].json, &p);
		for (size_t j = 0; j < 5; j++) {        /* within a thousandth */
			const uint64_t got = e.peak[phase[j]],
				       off = got > want[j] ? got - want[j] : want[j] - got;

			if (off > want[j] / 1000)
				fail_msg("%s, %s: %llu bytes, %llu measured", cases[i].json,
					 oom_phase_str(phase[j]), (unsigned long long)got,
					 (unsigned long long)want[j]);
		}
	}
}

/* PEFT without a task type: all-linear takes the classifier too, and leaves a named list alone. */
static void lora_on_the_head(void **state)
{
	struct oom_plan p = plan_of(1);
	const uint64_t layers = 12, d = 768, ff = 3072, r = 8;
	struct oom_eval e;

	(void)state;
	p.lora_r = (int64_t)r;
	snprintf(p.lora_targets, sizeof(p.lora_targets), "all-linear");
	e = must("{\"model_type\":\"vit\"}", &p);
	assert_int_equal(e.trainable_params,
			 layers * r * (4 * (d + d) + 2 * (d + ff)) + r * (d + 2));
	snprintf(p.lora_targets, sizeof(p.lora_targets), "q_proj+v_proj");
	e = must("{\"model_type\":\"vit\"}", &p);
	assert_int_equal(e.trainable_params, layers * r * 2 * (d + d));
}

/* Adafactor keeps rows and columns of the last two dimensions: of the positions [1, 197, d] and the
 * class token [1, 1, d], of the patch convolution as d x 3 matrices of 16 x 16
 * (transformers/optimization.py, Adafactor._get_options). */
static void adafactor_factors_positions(void **state)
{
	struct oom_plan p = plan_of(1);
	const uint64_t d = 768, ff = 3072, layers = 12, n = 197, maps = d * 3;
	uint64_t factored, full, tensors;
	struct oom_eval e;

	(void)state;
	p.optimizer = named("adafactor");
	e = must("{\"model_type\":\"vit\"}", &p);
	factored = (n + d) + (1 + d) + maps * (16 + 16) + layers * (4 * 2 * d + 2 * (d + ff)) +
		   (2 + d);
	full = d + layers * (4 * d + ff + d + 4 * d) + 2 * d + 2;       /* biases and norms */
	tensors = 4 + layers * 16 + 4;
	assert_int_equal(e.opt_bytes, 4 * (factored + full + tensors));
}

/* In a batch of one expand() is a view, and the gradients of DeiT's two tokens are slices of one storage: it is given up
 * once, and what a step leaves are the weights and the images (DeiT-B of four layers, 224 x 224 pixels). */
static void one_storage_for_two_gradients(void **state)
{
	static const char deit[] = "{\"model_type\":\"deit\",\"num_hidden_layers\":4,\"architectures\":[\"DeiTModel\"]}";
	struct oom_plan p = plan_of(1), again;
	struct oom_eval e, twice;

	(void)state;
	p.precision = OOM_FP32;
	p.optimizer = named("sgd");
	e = must(deit, &p);
	again = p;
	again.grad_accum = 2;
	twice = must(deit, &again);
	assert_int_equal(twice.end[OOM_PHASE_BWD2], e.end[OOM_PHASE_BWD2]);
	p.step_in_backward = 1;
	e = must(deit, &p);
	assert_true(e.end[OOM_PHASE_BWD2] >= e.end[OOM_PHASE_OPT2]);
	assert_true(e.end[OOM_PHASE_OPT2] >= e.peak[OOM_PHASE_LOAD] + 3 * 224 * 224 * 4);
}

static void says_what_is_wrong(void **state)
{
	static const struct {
		const char *json, *word;
	} cases[] = {
		{"{\"model_type\":\"convnext\",\"depths\":[3,3]}", "depths"},
		{"{\"model_type\":\"segformer\",\"strides\":[]}", "strides"},
		{"{\"model_type\":\"swinv2\",\"num_heads\":[3,6,12,0]}", "num_heads"},
		{"{\"model_type\":\"focalnet\",\"focal_levels\":[2]}", "focal_levels"},
		{"{\"model_type\":\"hiera\",\"patch_size\":7}", "patch_size"},
		{"{\"model_type\":\"mobilevit\",\"neck_hidden_sizes\":[16]}", "neck_hidden_sizes"},
		{"{\"model_type\":\"levit\",\"depths\":[40,40,4]}", "depths add up to more than 40 layers"},
	};
	const struct oom_plan p = plan_of(1);
	struct oom_eval e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};

		assert_int_not_equal(price(cases[i].json, &p, &e, &err), OOM_OK);
		if (!strstr(err.text, cases[i].word))
			fail_msg("%s: \"%s\" does not name the key", cases[i].json, err.text);
	}
	/* transformers' GradientCheckpointingLayer of these is the stage (modeling_swin.py SwinStage) */
	for (size_t i = 0; i < 2; i++) {
		struct oom_plan every = p;
		struct oom_error err = {{0}};

		every.grad_ckpt = OOM_CKPT_FULL;
		every.ckpt_every = 2;
		assert_int_equal(price(i ? "{\"model_type\":\"focalnet\"}" : "{\"model_type\":\"swin\"}", &every,
				       &e, &err),
				 OOM_ERR_INVALID);
		assert_non_null(strstr(err.text, "ckpt-every"));
	}
	/* counted as the config says it, with a warning */
	e = must("{\"model_type\":\"efficientnet\",\"hidden_dim\":3200}", &p);
	assert_int_equal(e.total_params, 63792082 + 2 * (3200 - 2560) + 2 * (3200 - 2560));
	assert_non_null(strstr(e.warning[0], "do not fit"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_counts),
		cmocka_unit_test(default_configurations),
		cmocka_unit_test(measured_peaks),
		cmocka_unit_test(lora_on_the_head),
		cmocka_unit_test(adafactor_factors_positions),
		cmocka_unit_test(one_storage_for_two_gradients),
		cmocka_unit_test(says_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
