/* What the files of a run together say of its cards: how many there are, how many rows each has, over which of them a
 * model is divided. */
#include <stdint.h>
#include <stdlib.h>

#include "parts.h"

int64_t part_whole(const struct fw_part *all, const char *knob, int64_t otherwise)
{
	const char *text = fw_fact(all, knob);

	return *text ? strtoll(text, NULL, 10) : otherwise;
}

/* A key that counts the rows that all cards hold at once. Where nobody says how many cards there are it is one, as
 * in the rest of the report. */
void reading_settle_all_micro(struct fw_part *all)
{
	const int64_t gpus = part_whole(all, "gpus", 0), rows = part_whole(all, "@all-micro-batch", 0);

	if (rows <= 0 || part_fact(all, "micro-batch") || (gpus > 0 && rows % gpus))
		return;
	fw_set_whole(all, "micro-batch", gpus > 0 ? rows / gpus : rows, NULL, "the rows of all cards / GPUs");
	if (gpus <= 0)
		fw_open(all, "micro-batch", "the file counts the rows of all cards, and how many there are is open: "
			"they are taken to be on one");
}

/* All three batch sizes say for how many GPUs they were written: DeepSpeed's runtime/config.py _batch_assertion
 * refuses any other number. */
static void settle_gpus(struct fw_part *all, int64_t shards)
{
	const int64_t micro = part_whole(all, "micro-batch", 0), accum = part_whole(all, "grad-accum", 0), global = part_whole(all, "global-batch", 0);

	if (part_fact(all, "gpus") || fw_is_withheld(all, "gpus") || !fw_fact_from_file(all, "micro-batch") ||
	    !fw_fact_from_file(all, "grad-accum") || !fw_fact_from_file(all, "global-batch") || micro <= 0 || accum <= 0 ||
	    micro > 1000000 || accum > 1000000 || shards <= 0 || shards > 1000000 || global <= 0 || global % (micro * accum) ||
	    global / (micro * accum) > 1000000)
		return;
	fw_set_whole(all, "gpus", global / (micro * accum) * shards, NULL, "global batch / (micro-batch x accumulation)");
}

/* Micro-batches of as many rows as tokens allow, as many of them as it takes: their rows need not divide a card's of a step,
 * and there are no more of them than those. */
static void settle_token_rows(struct fw_part *all, int64_t replicas)
{
	const int64_t rows = part_whole(all, "micro-batch", 0), global = part_whole(all, "global-batch", 0);
	int64_t of_card;

	if (rows <= 0 || global <= 0 || global > INT32_MAX || replicas > INT32_MAX)
		return;
	of_card = (global + replicas - 1) / replicas;
	fw_set(all, "@price.global-batch", "0", NULL, NULL);
	if (of_card < rows) {
		fw_set_whole(all, "@price.micro-batch", of_card, NULL, NULL);
		fw_open(all, "micro-batch", reading_text(all->reading, "a step has %lld rows of a card, which its tokens hold at once", (long long)of_card));
	}
	fw_set_whole(all, "grad-accum", (of_card + rows - 1) / rows, NULL, "rows of a card / rows of a micro-batch, rounded up");
}

/* Of the three batch sizes two give the third, where the GPUs are known. */
void reading_settle_batch(struct fw_part *all)
{
	const int64_t gpus = part_whole(all, "gpus", 0),
		      shards = part_whole(all, "tp", 1) * part_whole(all, "pp", 1) * part_whole(all, "cp", 1) *
			       part_whole(all, "@sequence-shards", 1),
		      micro = part_whole(all, "micro-batch", 0), accum = part_whole(all, "grad-accum", 0),
		      global = part_whole(all, "global-batch", 0);
	const int64_t replicas = gpus > 0 && shards > 0 && gpus >= shards ? gpus / shards : 0;

	if (part_fact(all, "@token-rows")) {
		const int64_t cards = gpus > 0 ? gpus : all->reading->gpus;

		settle_token_rows(all, shards > 0 && cards > shards ? cards / shards : 1);
		return;
	}
	settle_gpus(all, shards);
	if (!replicas || micro < 0 || accum < 0 || micro > 1000000 || accum > 1000000)
		return;
	if (micro && accum && !global && replicas < 1000000)
		fw_set_whole(all, "global-batch", micro * accum * replicas, NULL,
			     "micro-batch x accumulation x data-parallel GPUs");
	else if (micro && global && !fw_fact_from_file(all, "grad-accum") &&
		 global % (micro * replicas) == 0)
		fw_set_whole(all, "grad-accum", global / (micro * replicas), NULL,
			     "global batch / (micro-batch x data-parallel GPUs)");
	else if (accum && global && !micro && global % (accum * replicas) == 0)
		fw_set_whole(all, "micro-batch", global / (accum * replicas), NULL,
			     "global batch / (accumulation x data-parallel GPUs)");
	else if (micro && global && fw_fact_from_file(all, "micro-batch") && fw_fact_from_file(all, "global-batch") &&
		 global < micro * replicas) {
		fw_set(all, "@price.global-batch", "0", NULL, NULL);
		fw_open(all, "global-batch", reading_text(all->reading, "%lld rows of all GPUs are fewer than micro-batch x GPUs (%lld x %lld): "
			"the micro-batch is priced as it stands", (long long)global, (long long)micro, (long long)replicas));
	}
}

/* Replicas of a sharded model, each over as many cards as it has shards: a plan has one per machine, and as many machines
 * as there are replicas give the same shards.  Where no file says how many cards there are, the fewest that the degrees
 * allow. */
void reading_settle_replicas(struct fw_part *all)
{
	const int64_t others = part_whole(all, "tp", 1) * part_whole(all, "pp", 1) * part_whole(all, "cp", 1), shards = part_whole(all, "@shards", 0),
		      gpus = part_whole(all, "gpus", 0);
	int64_t replicas = part_whole(all, "@replicas", 0);

	if (!replicas && shards > 0)
		replicas = gpus > shards ? gpus / shards : 1;
	if (replicas < 1 || others < 1 || others > 100000)
		return;
	if (!gpus && replicas > 1 && !fw_is_withheld(all, "gpus")) {
		fw_set_whole(all, "gpus", replicas * others * (shards > 0 ? shards : 1), NULL, "the fewest for so many replicas");
		fw_open(all, "gpus", "the files do not say how many: the fewest that the degrees allow are priced, unless --gpus says");
	}
	if (replicas == 1) {
		fw_set(all, "@price.hybrid-shard", "false", NULL, NULL);
	} else if (part_whole(all, "gpus", 0) && part_whole(all, "gpus", 0) % replicas == 0) {
		fw_set_whole(all, "@price.nodes", replicas, NULL, NULL);
		if (part_whole(all, "nodes", 1) != replicas)
			fw_open(all, "nodes", reading_text(all->reading, "%lld replicas of a sharded model are priced as so many machines: "
				"memory is the same, times and what --emit writes are theirs", (long long)replicas));
	} else {
		fw_open(all, "hybrid-shard", reading_text(all->reading, "%lld replicas are not known to divide the cards: a replica per "
			"machine is priced", (long long)replicas));
	}
}

/* One process has nobody to share with: FSDP1 says that it switches to NO_SHARD (torch/distributed/fsdp/_init_utils.py
 * _init_core_state). */
void reading_settle_one_process(struct fw_part *all)
{
	/* who asks may know of more cards than the file */
	if (all->reading->gpus > 1 || !fw_fact_is(all, "engine", "fsdp1") || part_whole(all, "gpus", 0) != 1 || !fw_fact_from_file(all, "gpus") || part_whole(all, "zero", 0) < 1)
		return;
	fw_set(all, "@price.zero", "0", NULL, NULL);
	fw_open(all, "zero", "one process: FSDP shards nothing there, and is priced so");
}
