/* Lightning's command line (LightningCLI): a Trainer, a module and its data in one YAML.
 *
 * How a run is divided and in which precision it computes is the Trainer's, and the same for everybody.  The module is
 * its users' own class: of its arguments those are read whose names say what they are, and one sentence says that the
 * rest is its code's to decide. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework.h"

#define TRAINER "lightning/pytorch/trainer/trainer.py"
#define STRATEGIES "lightning/pytorch/strategies"
#define BACKBONE "model.init_args.backbone.init_args."
#define FROZEN "true>freeze;false>"
#define OPTIMIZERS "torch.optim.AdamW>adamw;torch.optim.Adam>adamw;AdamW>adamw;Adam>adamw;" \
		   "torch.optim.SGD>sgd;SGD>sgd;deepspeed.ops.adam.FusedAdam>adamw-fused;" \
		   "deepspeed.ops.adam.DeepSpeedCPUAdam>adamw"
#define ON_OFF "true>full;false>none"

static const struct fw_row rows[] = {
	FW_KEY("trainer.precision", "precision",
	       "32>fp32;32-true>fp32;bf16-mixed>amp-bf16;bf16>amp-bf16;16-mixed>amp-fp16;16>amp-fp16;bf16-true>bf16;"
	       "16-true>fp16", "fp32", TRAINER " precision"),
	{"trainer.devices", .hook = true, .source = TRAINER},
	FW_KEY("trainer.num_nodes", "nodes", NULL, "1", TRAINER),
	FW_KEY("trainer.accumulate_grad_batches", "grad-accum", NULL, "1", TRAINER),
	{"trainer.strategy", .hook = true, .source = STRATEGIES},
	{"trainer.strategy.init_args.backward_prefetch", .hook = true, .source = STRATEGIES "/fsdp.py"},
	{"trainer.accelerator", .hook = true, .source = TRAINER},
	{"trainer.plugins", .note = "plugins may change the precision or how weights are sharded"},
	FW_KEY("data.init_args.batch_size", "micro-batch", NULL, NULL, NULL),
	FW_KEY("data.init_args.train_batch_size", "micro-batch", NULL, NULL, NULL),
	FW_KEY("data.batch_size", "micro-batch", NULL, NULL, NULL),
	FW_KEY("data.init_args.num_workers", "dataloader-workers", NULL, NULL, NULL),
	FW_KEY("data.num_workers", "dataloader-workers", NULL, NULL, NULL),
	FW_KEY("data.init_args.prefetch_factor", "prefetch-factor", NULL, NULL, NULL),
	FW_KEY(BACKBONE "max_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("data.init_args.max_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("data.init_args.max_seq_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("data.init_args.max_seq_len", "seq-len", NULL, NULL, NULL),
	FW_KEY("data.max_seq_length", "seq-len", NULL, NULL, NULL),
	FW_KEY("model.init_args.pretrained_model_name_or_path", "model", NULL, NULL, NULL),
	FW_KEY("model.init_args.model_name_or_path", "model", NULL, NULL, NULL),
	FW_KEY("model.init_args.model_name", "model", NULL, NULL, NULL),
	FW_KEY("model.init_args.model_id", "model", NULL, NULL, NULL),
	FW_KEY("model.init_args.backbone.class_path", "model", NULL, NULL, NULL),
	FW_KEY(BACKBONE "use_peft", "method", "true>lora;false>", NULL, "peft"),
	FW_KEY(BACKBONE "lora_r", "lora-r", NULL, NULL, "peft"),
	FW_KEY(BACKBONE "lora_dropout", "lora-dropout", NULL, NULL, "peft"),
	FW_KEY(BACKBONE "lora_target_modules", "lora-targets", NULL, NULL, "peft"),
	FW_KEY(BACKBONE "lora_modules_to_save", "modules-to-save", NULL, NULL, "peft"),
	FW_KEY(BACKBONE "config_overwrites.gradient_checkpointing", "grad-ckpt", ON_OFF, NULL, NULL),
	FW_KEY("model.init_args.gradient_checkpointing", "grad-ckpt", ON_OFF, NULL, NULL),
	FW_KEY("model.init_args.freeze_backbone", "method", FROZEN, NULL, NULL),
	FW_KEY("model.init_args.freeze_encoder", "method", FROZEN, NULL, NULL),
	FW_KEY(BACKBONE "frozen", "method", FROZEN, NULL, NULL),
	{"model.init_args.optimizer", .hook = true}, {"optimizer", .hook = true},
	FW_KEY("model.init_args.optimizer.class_path", "optimizer", OPTIMIZERS, NULL, "torch.optim"),
	FW_KEY("optimizer.class_path", "optimizer", OPTIMIZERS, NULL, "torch.optim"),
	{"model.class_path", .hook = true},
	{.key = NULL},
};

static const char idle[] =
	"seed_everything ckpt_path lr_scheduler* optimizer.* custom_modules_path verbose model* data* deploy_config_file "
	"trainer.logger* trainer.callbacks* trainer.fast_dev_run trainer.max_* trainer.min_* trainer.limit_* "
	"trainer.overfit_batches trainer.val_check_interval trainer.check_val_every_n_epoch trainer.num_sanity_val_steps "
	"trainer.log_every_n_steps trainer.enable_* trainer.gradient_clip_* trainer.deterministic trainer.benchmark "
	"trainer.inference_mode trainer.use_distributed_sampler trainer.profiler* trainer.detect_anomaly trainer.barebones "
	"trainer.sync_batchnorm trainer.reload_dataloaders_every_n_epochs trainer.default_root_dir trainer.weights_* "
	"trainer.auto_* trainer.track_grad_norm (launcher) (program) (words) (files)";

static const char *strategy_key(const struct fw_part *p)
{
	return fw_key(p, "trainer.strategy.class_path") ? "trainer.strategy.class_path" : "trainer.strategy";
}

/* "deepspeed_stage_3_offload", or DeepSpeedStrategy with stage and offload of its own (stage 2 where it says none). */
static void take_deepspeed(struct fw_part *p, const char *word)
{
	const char *stage = strstr(word, "stage_"), *said = fw_text(p, "trainer.strategy.init_args.stage");
	const bool offload = strstr(word, "offload") || fw_on(p, "trainer.strategy.init_args.offload_optimizer"),
		   params = strstr(word, "stage_3_offload") || fw_on(p, "trainer.strategy.init_args.offload_parameters");

	fw_set(p, "engine", "deepspeed", "trainer.strategy", STRATEGIES "/deepspeed.py");
	fw_set(p, "zero", stage ? (char[]){stage[6], 0} : *said ? said : "2", "trainer.strategy", STRATEGIES "/deepspeed.py");
	fw_set(p, "offload-optimizer", offload ? "cpu" : "none", "trainer.strategy", STRATEGIES "/deepspeed.py");
	fw_set(p, "offload-params", params ? "cpu" : "none", "trainer.strategy", STRATEGIES "/deepspeed.py");
}

static void take_fsdp(struct fw_part *p)
{
	const char *key = "trainer.strategy.init_args.backward_prefetch", *prefetch = fw_text(p, key),
		   *sharding = fw_text(p, "trainer.strategy.init_args.sharding_strategy");
	const bool offload = fw_on(p, "trainer.strategy.init_args.cpu_offload");

	fw_set(p, "engine", "fsdp1", "trainer.strategy", STRATEGIES "/fsdp.py");
	fw_set(p, "zero", !strcmp(sharding, "NO_SHARD") ? "0" : !strcmp(sharding, "SHARD_GRAD_OP") ? "2" : "3",
	       "trainer.strategy", STRATEGIES "/fsdp.py sharding_strategy");
	/* **kwargs are torch's own, whose default is BACKWARD_PRE */
	if (!strcmp(prefetch, "BACKWARD_POST") || (fw_key(p, key) && doc_is_off(fw_key(p, key))))
		fw_set(p, "backward-prefetch", *prefetch == 'B' ? "post" : "none", key, STRATEGIES "/fsdp.py");
	if (strstr(sharding, "HYBRID"))
		fw_set(p, "hybrid-shard", "true", "trainer.strategy", STRATEGIES "/fsdp.py");
	fw_set(p, "offload-params", offload ? "cpu" : "none", "trainer.strategy", STRATEGIES "/fsdp.py");
	fw_set(p, "offload-optimizer", offload ? "cpu" : "none", "trainer.strategy", STRATEGIES "/fsdp.py");
	if (fw_key(p, "trainer.strategy.init_args.activation_checkpointing_policy"))
		fw_set(p, "grad-ckpt", "full", "trainer.strategy", STRATEGIES "/fsdp.py");
}

static void finish_strategy(struct fw_part *p)
{
	const char *key = strategy_key(p), *word = fw_text(p, key), *dot = strrchr(word, '.'), *name = dot ? dot + 1 : word;

	if (!*name || !strncmp(name, "auto", 4) || !strncmp(name, "ddp", 3) || !strncmp(name, "DDP", 3) ||
	    !strncmp(name, "Single", 6))
		fw_set(p, "engine", "hf", *name ? "trainer.strategy" : NULL, STRATEGIES ": whole on every card");
	else if (!strncmp(name, "deepspeed", 9) || !strncmp(name, "DeepSpeed", 9))
		take_deepspeed(p, name);
	else if (strstr(name, "fsdp") || strstr(name, "FSDP"))
		take_fsdp(p);
	else
		fw_unmodelled(p, "trainer.strategy", "a strategy that is not known here: engine, zero and what is offloaded are "
			      "open, whole on every card is priced");
}

static void finish_devices(struct fw_part *p)
{
	const struct doc_node *devices = fw_key(p, "trainer.devices");
	int64_t n = 0, nodes = 1;

	if (devices && devices->kind == DOC_LIST)
		n = devices->n;
	else if (!doc_whole(devices, &n))
		n = 0;
	doc_whole(fw_key(p, "trainer.num_nodes"), &nodes);
	if (n > 0 && n < 100000 && nodes > 0 && nodes < 100000)
		fw_set_whole(p, "gpus", n * nodes, "trainer.devices", "devices of a node x nodes");
	else
		fw_withhold(p, "gpus");
	if (!strcmp(fw_text(p, "trainer.accelerator"), "cpu"))
		fw_unmodelled(p, "trainer.accelerator", "the run is on the CPU: no GPU memory is used");
}

static void finish(struct fw_part *p)
{
	finish_strategy(p);
	finish_devices(p);
	if (fw_on(p, "model.init_args.optimizer.init_args.fused") || fw_on(p, "optimizer.init_args.fused"))
		fw_set(p, "optimizer", "adamw-fused", fw_key(p, "optimizer") ? "optimizer" : "model.init_args.optimizer", NULL);
	if (fw_fact_is(p, "method", "lora"))
		fw_default(p, "lora-r", "16", "modelgenerator/backbones");
	fw_default(p, "method", "full", "nothing is said to be frozen");
	fw_unmodelled(p, "model.class_path", "a module of its users' own, whose code decides objective, loss, attn, grad-ckpt "
		      "and, where nothing is said, method, optimizer and seq-len");
}

static const struct fw_row *const lists[] = {rows, NULL};
static const char *const idles[] = {idle, NULL};

const struct framework framework_lightning = {
	.name = "lightning-cli",
	.summary = "Lightning's YAML of a Trainer, a module and its data (LightningCLI)",
	.version = "Lightning 2.5",
	.role = FW_TRAINER,
	.marks = "trainer+model.class_path trainer+data.class_path trainer+seed_everything",
	.never = "model.tensor_model_parallel_size model.micro_batch_size exp_manager",
	.rows = lists,
	.idle = idles,
	.finish = finish,
};
