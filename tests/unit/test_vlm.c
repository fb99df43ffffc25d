/* Vision-language models: parameters of both towers, what a config may leave out, which class a
 * task means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "priced.h"

static struct oom_plan small(void)
{
	struct oom_plan p = oom_plan_default();

	p.micro_batch = 1;
	p.seq_len = 16;
	return p;
}

/* The default configuration of each class, built on the meta device with transformers 5.12
 * (AutoModelForImageTextToText .from_config, parameters counted once when tied). */
static void default_configurations(void **state)
{
	static const struct {
		const char *type;
		uint64_t params;
	} cases[] = {
		{"llava", 7062902784}, {"llava_next", 7062906880}, {"llava_onevision", 12469102112}, {"vipllava", 7079690240},
		{"video_llava", 7365754880}, {"gemma3", 2723312896}, {"paligemma", 2910390528}, {"qwen2_vl", 73381962752},
		{"qwen2_5_vl", 75789228800}, {"qwen3_vl", 12616410352}, {"qwen3_vl_moe", 14052070640}, {"internvl", 11765025792},
		{"mistral3", 23340272640}, {"glm4v", 10292777472}, {"cohere2_vision", 35651000064}, {"video_llama_3", 12155424000},
		{"blip-2", 1216944384}, {"deepseek_vl_hybrid", 6817039873}, {"got_ocr2", 560528640}, {"florence2", 497761280},
		{"fuyu", 9408238592}, {"gemma4", 5077177856}, {"ernie4_5_vl_moe", 29399294336}, {"blip", 223971644},
	};
	const struct oom_plan p = small();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char json[80];
		struct oom_eval e;

		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", cases[i].type);
		e = must(json, &p);
		if (e.total_params != cases[i].params)
			fail_msg("%s: %llu", cases[i].type, (unsigned long long)e.total_params);
	}
}

/* Qwen2-VL-2B-Instruct as published, its text keys at the top of the file: 2 208 985 600
 * parameters (model card). */
static void old_flat_file(void **state)
{
	const struct oom_plan p = small();
	const struct oom_eval e = must(
		"{\"model_type\": \"qwen2_vl\", \"hidden_size\": 1536, \"intermediate_size\": 8960, \"num_attention_heads\": 12,"
		" \"num_hidden_layers\": 28, \"num_key_value_heads\": 2, \"tie_word_embeddings\": true, \"vocab_size\": 151936,"
		" \"vision_config\": {\"depth\": 32, \"embed_dim\": 1280, \"mlp_ratio\": 4, \"num_heads\": 16, \"in_chans\": 3,"
		" \"hidden_size\": 1536, \"patch_size\": 14, \"spatial_merge_size\": 2, \"temporal_patch_size\": 2}}", &p);

	(void)state;
	assert_int_equal(e.total_params, 2208985600);
}

/* Without images the tower is held but nothing flows through it: no gradient, no optimizer
 * state, no activation. */
static void towers_without_images(void **state)
{
	struct oom_plan p = small();
	const char *vlm = "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": "
			  "\"llama\", \"num_hidden_layers\": 2},"
			  " \"vision_config\": {\"num_hidden_layers\": 2, \"hidden_size\": 1024, "
			  "\"image_size\": 336}}";
	const char *text = "{\"model_type\": \"llama\", \"num_hidden_layers\": 2}";
	const struct oom_eval v = must(vlm, &p), t = must(text, &p);

	(void)state;
	assert_true(v.total_params > t.total_params);
	assert_int_equal(v.trainable_params, v.total_params);
	assert_int_equal(v.grad_bytes, t.grad_bytes);
	assert_int_equal(v.opt_bytes, t.opt_bytes);
	assert_int_equal(v.saved_bytes, t.saved_bytes);
}

/* With images the tower runs and is trained; each brings its pixels along.  (That the bytes are
 * those of a measured step is checked against the truth, where it is present.) */
static void images_cost(void **state)
{
	const char *vlm = "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": "
			  "\"llama\", \"num_hidden_layers\": 2,"
			  " \"hidden_size\": 256, \"intermediate_size\": 512, "
			  "\"num_attention_heads\": 4, \"vocab_size\": 1000},"
			  " \"vision_config\": {\"num_hidden_layers\": 2, \"hidden_size\": 64, "
			  "\"num_attention_heads\": 2,"
			  " \"intermediate_size\": 128, \"image_size\": 56, \"patch_size\": 14}}";
	struct oom_plan p = small();
	struct oom_error err = {{0}};
	struct oom_eval e[3];

	(void)state;
	p.precision = OOM_BF16;
	p.seq_len = 32;                 /* (56 / 14)^2 = 16 tokens per image */
	for (int i = 0; i < 3; i++) {
		p.images = i;
		e[i] = must(vlm, &p);
	}
	p.images = 3;
	assert_int_equal(price(vlm, &p, &e[0], &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "48 tokens (3 x 16)"));
	p.images = 0;
	e[0] = must(vlm, &p);
	assert_int_equal(e[1].total_params, e[0].total_params);
	assert_true(e[1].grad_bytes > e[0].grad_bytes);         /* the tower is trained now */
	assert_int_equal(e[2].grad_bytes, e[1].grad_bytes);
	assert_true(e[1].saved_bytes > e[0].saved_bytes);
	assert_true(e[2].saved_bytes > e[1].saved_bytes);
	/* inputs: 3 x 56 x 56 elements per image, 2 bytes each */
	assert_int_equal(e[1].input_bytes, e[0].input_bytes + 3 * 56 * 56 * 2);
	assert_int_equal(e[2].input_bytes, e[1].input_bytes + 3 * 56 * 56 * 2);
}

/* Types whose images or audio are measured say nothing and cost something; others say that they are not counted.  (The
 * bytes are those of tests/accuracy/images.csv and audio.csv.) */
static void what_is_counted(void **state)
{
	static const struct {
		const char *type;
		bool audio, counted;
		const char *more;       /* keys */
	} cases[] = {
		{"mllama", false, true, ""}, {"idefics2", false, true, ""}, {"ovis2", false, true, ""},
		{"janus", false, true, ""}, {"qwen2_5_omni_thinker", false, true, ""},
		{"qwen3_omni_moe_thinker", false, true, ""}, {"fuyu", false, true, ""},
		{"instructblip", false, true, ""}, {"instructblipvideo", false, true, ""}, {"blip-2", false, true, ""},
		{"got_ocr2", false, true, ""},
		{"gemma4", false, true, ", \"vision_config\": {}"},
		{"florence2", false, true, ""}, {"kosmos-2", false, true, ""}, {"blip", false, true, ""},
		{"kosmos-2.5", false, false, ""}, {"qwen2_audio", false, false, ""}, {"llava", true, false, ""},
		{"qwen2_audio", true, true, ""}, {"voxtral", true, true, ""}, {"audioflamingo3", true, true, ""},
		{"granite_speech", true, true, ""}, {"granite_speech_plus", true, false, ""}, {"glmasr", true, true, ""}, {"musicflamingo", true, true, ""},
		{"qwen2_5_omni_thinker", true, true, ""}, {"qwen3_omni_moe_thinker", true, true, ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = small();
		struct oom_eval alone, with;
		char json[80];

		p.precision = OOM_BF16;
		p.seq_len = 2048;
		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"%s}", cases[i].type, cases[i].more);
		alone = must(json, &p);
		if (cases[i].audio)
			p.audio_seconds = 40;
		else
			p.images = 1;
		with = must(json, &p);
		if (cases[i].counted == (with.warning[0] != NULL))
			fail_msg("%s: \"%s\"", cases[i].type, with.warning[0]);
		if (cases[i].counted != (with.grad_bytes > alone.grad_bytes && with.saved_bytes > alone.saved_bytes))
			fail_msg("%s: as without", cases[i].type);
	}
}

/* Forty seconds are two windows of thirty, of which Qwen2-Audio has 750 and 250 tokens (_get_feat_extract_output_lengths). */
/* Adafactor keeps the kernels of a convolution factored over their last two sides: 288,776 bytes of states, measured with
 * torch 2.14.1 and transformers 5.12.1 (a KOSMOS-2 whose latent queries, layers and tower are these). */
static void factored_kernels(void **state)
{
	static const char config[] =
		"{\"model_type\": \"kosmos-2\", \"latent_query_num\": 32, \"text_config\": {\"embed_dim\": 256, "
		"\"attention_heads\": 4, \"ffn_dim\": 512, \"layers\": 3, \"max_position_embeddings\": 4096, \"vocab_size\": 2048}, "
		"\"vision_config\": {\"hidden_size\": 192, \"image_size\": 112, \"intermediate_size\": 384, "
		"\"num_attention_heads\": 4, \"num_hidden_layers\": 5, \"patch_size\": 14}}";
	struct oom_plan p = small();
	struct oom_eval e;

	(void)state;
	p.optimizer = 0;
	p.precision = OOM_BF16;
	p.seq_len = 192;
	p.images = 1;
	p.image_size = 112;
	while (strcmp(oom_knob_find("optimizer")->choice((size_t)p.optimizer)->name, "adafactor") != 0)
		p.optimizer++;
	e = must(config, &p);
	assert_int_equal(e.opt_bytes, 288776);
}

/* A thinker that sees and hears takes more than one that does either; what each makes stays as it is. */
static void images_beside_audio(void **state)
{
	static const char *const types[] = {"qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct oom_plan p = small();
		struct oom_eval sees, hears, both;
		char json[80];

		p.precision = OOM_BF16;
		p.seq_len = 2048;
		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", types[i]);
		p.images = 1;
		sees = must(json, &p);
		p.audio_seconds = 4;
		both = must(json, &p);
		p.images = 0;
		hears = must(json, &p);
		assert_true(both.grad_bytes > sees.grad_bytes && both.grad_bytes > hears.grad_bytes);
		assert_true(both.saved_bytes > sees.saved_bytes && both.saved_bytes > hears.saved_bytes);
		assert_null(both.warning[0]);
	}
}

/* Frames of a video: pairs of them are an image to Qwen's tower, LLaVA-NeXT-Video keeps a quarter of an image's features and
 * OneVision as many and one newline (the lengths that a sequence must have; tests/accuracy/videos.csv holds the bytes); other types
 * say that video is not counted, text models too. */
static void frames_of_videos(void **state)
{
	static const struct {
		const char *type;
		const char *tokens;     /* of eight frames of 112 pixels; NULL: not counted */
	} cases[] = {
		{"qwen2_5_vl\", \"vision_config\": {\"out_hidden_size\": 8192}, \"_\": \"", " 64 tokens (4 x 16)"},
		{"qwen2_vl\", \"vision_config\": {\"hidden_size\": 8192}, \"_\": \"", " 64 tokens (4 x 16)"},
		{"internvl", "128 tokens (8 x 16)"},
		{"gemma4\", \"vision_config\": {\"patch_size\": 14}, \"_\": \"", " 56 tokens (8 x 7)"}, {"llava_next_video", "128 tokens (8 x 16)"}, {"llava", NULL}, {"gemma3", NULL},
		{"qwen2_audio", NULL}, {"llama", NULL},
	};
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = small();
		char json[120];

		p.precision = OOM_BF16;
		p.video_frames = 8;
		p.image_size = 112;
		p.seq_len = cases[i].tokens ? 16 : 512;
		snprintf(json, sizeof(json), "{\"model_type\": \"%s\"}", cases[i].type);
		if (cases[i].tokens) {
			assert_int_equal(price(json, &p, &e, &err), OOM_ERR_INVALID);
			if (!strstr(err.text, cases[i].tokens))
				fail_msg("%s: \"%s\"", cases[i].type, err.text);
			p.seq_len = 512;
			e = must(json, &p);
			assert_null(e.warning[0]);
		} else {
			e = must(json, &p);
			assert_non_null(strstr(e.warning[0], "video is not counted for this model type"));
		}
	}
}

static void audio_needs_room(void **state)
{
	struct oom_plan p = small();
	struct oom_error err = {{0}};
	struct oom_eval e;

	(void)state;
	p.audio_seconds = 40;
	p.seq_len = 999;
	assert_int_equal(price("{\"model_type\": \"qwen2_audio\"}", &p, &e, &err), OOM_ERR_INVALID);
	assert_non_null(strstr(err.text, "1000 tokens"));
	p.seq_len = 1000;
	must("{\"model_type\": \"qwen2_audio\"}", &p);
}

/* A config whose class no task has says so, unless the task is said: segmentation, detection, and CLIP's two towers. */
static void classes_of_other_tasks(void **state)
{
	static const struct {
		const char *json, *says;        /* NULL: nothing */
	} cases[] = {
		{"{\"model_type\": \"segformer\", \"architectures\": [\"SegformerForSemanticSegmentation\"]}", "is not modelled"},
		{"{\"model_type\": \"segformer\", \"architectures\": [\"SegformerForImageClassification\"]}", NULL},
		{"{\"model_type\": \"vit\", \"architectures\": [\"ViTForMaskedImageModeling\"]}", "is not modelled"},
		{"{\"model_type\": \"vit\", \"architectures\": [\"ViTModel\"]}", NULL},
		{"{\"model_type\": \"whisper\", \"architectures\": [\"WhisperForAudioClassification\"]}", "is not modelled"},
		{"{\"model_type\": \"clip\", \"architectures\": [\"CLIPModel\"]}", "its text tower and contrastive loss"},
		{"{\"model_type\": \"siglip\", \"architectures\": [\"SiglipForImageClassification\"]}", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = oom_plan_default();
		struct oom_eval e = must(cases[i].json, &p);
		char said[OOM_WARNINGS_SIZE];

		oom_warnings_of(NULL, &e, said);
		if (cases[i].says ? !strstr(said, cases[i].says) : *said)
			fail_msg("%s: \"%s\"", cases[i].json, said);
		if (strstr(cases[i].json, "CLIPModel")) {
			p.task = OOM_TASK_IMAGE_CLS;
			e = must(cases[i].json, &p);
			assert_null(e.warning[0]);
		}
	}
}

/* Text models and towers without a text say that they do not look at images; a classifier of images has one a sample. */
static void images_of_other_models(void **state)
{
	static const struct {
		const char *json;
		int64_t images;
		bool warned;
	} cases[] = {{"{\"model_type\": \"llama\"}", 2, true}, {"{\"model_type\": \"t5\"}", 1, true}, {"{\"model_type\": \"llama\"}", 0, false},
		     {"{\"model_type\": \"vit\"}", 1, false}, {"{\"model_type\": \"vit\"}", 3, true}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_plan p = small();
		struct oom_eval e;

		p.images = cases[i].images;
		e = must(cases[i].json, &p);
		if (cases[i].warned != (e.warning[0] && strstr(e.warning[0], "images are not counted")))
			fail_msg("%s: \"%s\"", cases[i].json, e.warning[0]);
	}
}

static void refusals(void **state)
{
	static const struct {
		const char *json, *word;
	} cases[] = {
		{"{\"model_type\": \"llava\", \"vision_config\": {\"model_type\": \"nonesuch\"}}", "nonesuch"},
		{"{\"model_type\": \"llava\", \"vision_config\": {\"num_attention_heads\": 0}}", "num_attention_heads"},
		{"{\"model_type\": \"llava\", \"vision_config\": {\"patch_size\": 0}}", "vision_config"},
		{"{\"model_type\": \"internvl\", \"vision_config\": {\"image_size\": [\"x\"], \"patch_size\": [0, 0]}}", "image_size"},
		{"{\"model_type\": \"llava\", \"text_config\": {\"hidden_size\": -1}}", "hidden_size"},
	};
	const struct oom_plan p = small();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_eval e;

		assert_int_not_equal(price(cases[i].json, &p, &e, &err), OOM_OK);
		if (!strstr(err.text, cases[i].word))
			fail_msg("%s: %s", cases[i].json, err.text);
	}
}

/* The text model alone is tied as its own config says, and its checkpointed layers run again from what the
 * model holds: Llama 4's top says tied, its text does not.  Parameters counted on the meta device. */
static void text_alone_is_checkpointed(void **state)
{
	struct oom_plan p = small();
	struct oom_eval e;

	(void)state;
	p.task = OOM_TASK_CAUSAL_LM;
	p.grad_ckpt = OOM_CKPT_FULL;
	e = must("{\"model_type\":\"llama4\",\"tie_word_embeddings\":true}", &p);
	assert_int_equal(e.total_params, 107769861120);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_alone_is_checkpointed),
		cmocka_unit_test(default_configurations),
		cmocka_unit_test(old_flat_file),
		cmocka_unit_test(towers_without_images),
		cmocka_unit_test(images_cost),
		cmocka_unit_test(what_is_counted),
		cmocka_unit_test(factored_kernels),
		cmocka_unit_test(images_beside_audio),
		cmocka_unit_test(frames_of_videos),
		cmocka_unit_test(classes_of_other_tasks),
		cmocka_unit_test(audio_needs_room),
		cmocka_unit_test(images_of_other_models),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
