/* What PyTorch's numbers say about a card, and about the unified memory of a Mac.
 *
 * Playbook M2 (fragmentation against true shortage), M8; c10/cuda/CUDACachingAllocator.cpp for what each number
 * counts. Shares of the card that decide are judgements. */
#include <stdio.h>

#include "tables.h"

static uint64_t num(const struct oom_crash *c, enum oom_crash_number n)
{
	return c->known[n] ? c->bytes[n] : 0;
}

static const uint64_t GIB = 1073741824;

/* Bytes on the card that are neither free nor this process's.  A process listed by number may be
 * this one, seen from inside a container: its size is then what PyTorch holds and a context. */
uint64_t oom_card_outside(const struct oom_crash *c, bool *listed)
{
	const uint64_t held = num(c, OOM_CRASH_RESERVED_TOTAL), total = num(c, OOM_CRASH_TOTAL),
		       free_bytes = num(c, OOM_CRASH_FREE);
	uint64_t others = 0, own = held;

	if (num(c, OOM_CRASH_ALLOCATED) > own)
		own = num(c, OOM_CRASH_ALLOCATED);
	/* some containers and Windows read 0 bytes for it */
	if (num(c, OOM_CRASH_PROCESS) > own)
		own = num(c, OOM_CRASH_PROCESS);
	for (size_t i = 0; i < c->n_processes; i++) {
		const uint64_t b = c->process[i].bytes;

		/* with this process's own beside it the card would be more than full: it is the
		 * same one */
		const bool twice = total && own + b > total + total / 100 && b >= own;

		if (!c->known[OOM_CRASH_PROCESS] &&
		    (!c->known[OOM_CRASH_ALLOCATED] || twice || (b >= held && b - held < 2 * GIB)))
			own = b;
		else
			others += b;
	}
	*listed = others != 0;
	if (others)
		return others;
	/* a sentence that was cut off before it says what this process holds; a listed process of next to nothing
	 * is not the one that filled the card */
	if (!c->known[OOM_CRASH_TOTAL] || !c->known[OOM_CRASH_FREE] ||
	    (!c->known[OOM_CRASH_PROCESS] && !c->known[OOM_CRASH_ALLOCATED] && !c->known[OOM_CRASH_RESERVED_TOTAL]))
		return 0;
	return total > free_bytes + own ? total - free_bytes - own : 0;
}

/* Whether what is reserved ends just below a twentieth of the card, and the request would cross it:
 * torch.cuda.set_per_process_memory_fraction() is called with round numbers, and PyTorch before 2.9
 * does not print the cap (pytorch/pytorch#111363).  For a request of a hundredth of the card it is
 * one chance in five that this is a coincidence, for smaller ones less. */
static bool meets_round_share(uint64_t reserved, uint64_t tried, uint64_t total)
{
	/* twice the rounding of a printed number */
	const double slack = 0.01 * (double)GIB;

	if (!reserved || tried * 100 > total)
		return false;
	for (int k = 1; k < 20; k++) {
		const double cap = k * (double)total / 20;

		if ((double)reserved <= cap + slack && (double)(reserved + tried) > cap - slack)
			return true;
	}
	return false;
}

/* An APU reports half of the host's memory, or what its firmware set aside, as its capacity. */
static bool no_card_has(const struct oom_crash *c, uint64_t total)
{
	const uint64_t step = oom_runtime_named(c->framework)->card_step, over = step ? total % step : 0;

	return total > step && over && step - over > GIB / 4;
}

static bool sure(const struct oom_crash *c)
{
	return c->n_causes && c->cause[0].confidence >= 0.5;
}

/* Numbers that contradict one another, and caps that the message names; true: they are all there is to
 * say. */
static bool contradiction(struct oom_crash *c)
{
	const uint64_t total = num(c, OOM_CRASH_TOTAL), left = num(c, OOM_CRASH_FREE),
		       held = num(c, OOM_CRASH_ALLOCATED), tried = num(c, OOM_CRASH_TRIED);
	const bool overfull = held > total + total / 20;

	if (c->known[OOM_CRASH_ALLOWED] && num(c, OOM_CRASH_ALLOWED) < total)
		oom_cause_say(c, OOM_CAUSE_FRACTION_CAP, 0.95, "the message names an allowed share of the card");
	if (!total)
		return false;
	/* a size beyond any card is a subtraction below zero in the driver's or the allocator's
	 * unsigned numbers */
	if (left > total || total > (uint64_t)16 << 40)
		oom_cause_say(c, OOM_CAUSE_WRONG_CAPACITY, 0.8, "more is free than the card has, or no card has as much");
	/* Windows lends the host's memory before it refuses, and reports nothing free */
	if (overfull && c->known[OOM_CRASH_FREE] && !left) {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.65,
			      "more is allocated than the card has: Windows lent host memory, and that ran out too");
		oom_cause_say(c, OOM_CAUSE_WRONG_CAPACITY, 0.4, "or the driver reports a wrong capacity");
		return true;
	}
	if (overfull || total < 64 << 20)
		oom_cause_say(c, OOM_CAUSE_WRONG_CAPACITY, 0.6, "more is allocated than the card is said to hold");
	if (tried > total && no_card_has(c, total))
		/* a request of many times as much is no share's fault */
		oom_cause_say(c, OOM_CAUSE_WRONG_CAPACITY, tried / 2 > total ? 0.5 : 0.98,
			      "no card has that capacity: an APU's share of the host's memory");
	if (tried > total)
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.97, "the request alone is larger than the card");
	return false;
}

/* PyTorch counts more than the process holds on the card: memory that was unmapped, as an engine does that sleeps
 * beside a trainer (vLLM's sleep mode, CuMemAllocator), stays in its counters. What they call reserved and unallocated
 * is then no memory of the card. */
static bool counts_unmapped(struct oom_crash *c)
{
	const uint64_t held = num(c, OOM_CRASH_ALLOCATED), process = num(c, OOM_CRASH_PROCESS), total = num(c, OOM_CRASH_TOTAL),
		       reserved = num(c, OOM_CRASH_RESERVED_TOTAL);
	char why[160];

	if (!total || process < total / 2 || reserved < total + total / 20 || reserved < process + process / 20 || num(c, OOM_CRASH_FREE) >= num(c,
	    OOM_CRASH_TRIED))
		return false;
	snprintf(why, sizeof(why), "PyTorch counts %.2f GiB, the card %.2f of this process: an engine that sleeps (unmapped memory) is still counted",
		 (double)(reserved > held ? reserved : held) / (double)GIB, (double)process / (double)GIB);
	oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.7, why);
	if (c->part == OOM_PART_UNKNOWN)
		c->part = OOM_PART_ENGINE;
	return true;
}

/* Linux says what the process holds on the card; where that is missing, Windows lends memory and counts what it could
 * give, and a driver that refuses explains it as well. */
static bool capped_alone(const struct oom_crash *c)
{
	return !c->windows && (c->known[OOM_CRASH_PROCESS] || oom_format_is(c, OOM_FORMAT_OLD));
}

/* A refusal though as much is said to be free. */
static void refused_though_free(struct oom_crash *c)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL),
		       limit = oom_runtime_named(c->framework)->one_buffer;
	char why[160];

	if (limit && tried >= limit) {
		/* what is free is said only where the text says it */
		snprintf(why, sizeof(why), "%s, but one allocation above %.0f GiB is refused by this driver",
			 c->known[OOM_CRASH_FREE] ? "as much is free" : "this process holds next to nothing",
			 (double)limit / (double)GIB);
		oom_cause_say(c, OOM_CAUSE_BUFFER_LIMIT, 0.55, why);
	} else if (total && tried > total / 3)
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.6, "the request is a third of the card or more");
	else if (meets_round_share(num(c, OOM_CRASH_RESERVED_TOTAL), tried, total))
		oom_cause_say(c, OOM_CAUSE_FRACTION_CAP, capped_alone(c) ? 0.6 : 0.45,
			      "memory is free, but the request crosses a round share of the card: a cap set in the program");
	else
		oom_cause_say(c, OOM_CAUSE_UNKNOWN, 0.5,
			      "more is free than was asked for: the driver refused, or a cap");
}

/* What lies reserved and unallocated, against the request: the smaller its share of the card, the likelier it
 * is what any nearly full cache strands. */
static void stranded(struct oom_crash *c)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL),
		       idle = num(c, OOM_CRASH_RESERVED_UNALLOCATED), left = num(c, OOM_CRASH_FREE);
	const double share = total ? (double)idle / (double)total : 0;
	char why[160];

	if (!idle)
		return;
	if (idle >= tried && share >= 0.1) {
		snprintf(why, sizeof(why), "%.2f GiB reserved but unallocated, %.0f %% of the card, against a request of %.2f GiB",
			 (double)idle / (double)GIB, 100 * share, (double)tried / (double)GIB);
		oom_cause_say(c, OOM_CAUSE_FRAGMENTATION, share >= 0.2 ? 0.8 : share >= 0.12 ? 0.65 : 0.55, why);
	} else if (left + idle >= tried && share >= 0.2) {
		oom_cause_say(c, OOM_CAUSE_FRAGMENTATION, 0.45,
			      "the free and the stranded memory together would hold the request");
	}
}

/* No context, library or captured graph of one process is as large: a judgement, from the largest that labelled
 * texts show beside PyTorch's own (NCCL's and cuBLAS' buffers of a node of eight, some 5 GiB). */
static const uint64_t OTHERS = 12 * (UINT64_C(1) << 30);

/* One process is listed, and nothing says what this one holds: it may be either. */
static bool one_listed(struct oom_crash *c)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL), left = num(c, OOM_CRASH_FREE),
		       listed = c->n_processes ? c->process[0].bytes : 0;
	const bool rest = total > left + listed + GIB / 2;
	char why[160];

	if (!c->known[OOM_CRASH_FREE] || left >= tried || c->known[OOM_CRASH_PROCESS] || c->known[OOM_CRASH_ALLOCATED] ||
	    c->n_processes != 1)
		return false;
	/* a desktop's few MiB fill no card: what is not listed does */
	if (listed < (total - left) / 4) {
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, 0.75, "the request exceeds what is free; the processes that are listed hold little of the rest");
		return true;
	}
	snprintf(why, sizeof(why), "a process of that number holds %.2f GiB; the message does not say that it is this one",
		 (double)listed / (double)GIB);
	oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, rest ? 0.55 : 0.45, why);
	oom_cause_say(c, OOM_CAUSE_TOO_LARGE, rest ? 0.45 : 0.55, "the request exceeds what is free");
	return true;
}

/* The request against what the card has and what this process holds. */
static void too_large(struct oom_crash *c, uint64_t held)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL), left = num(c, OOM_CRASH_FREE),
		       idle = num(c, OOM_CRASH_RESERVED_UNALLOCATED);

	/* a sentence cut off before it says who holds the rest */
	if (total && left < tried && c->known[OOM_CRASH_FREE] && !held && !c->known[OOM_CRASH_ALLOCATED] && !c->n_processes &&
	    !c->known[OOM_CRASH_PROCESS])
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.75, "the request exceeds what is free; the text does not say who holds the rest");
	else if (total && left < tried && c->known[OOM_CRASH_FREE])
		/* a small share of the card, in pieces: any nearly full cache strands as much */
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : c->n_causes && c->cause[0].cause == OOM_CAUSE_OTHER_PROCESS ? 0.6 : 0.88,
			      idle + left < tried ? "the request exceeds what is free and stranded" :
				idle < tried    ? "the request exceeds what is free; what is stranded would make it up only in one piece" :
						  "the request exceeds what is free, and no piece of what is stranded is large enough");
	else if (total && held + tried > total)
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.88, "what this process holds and the request exceed the card together");
	else if (total && held + tried > total - total / 10)
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.8, "what this process holds and the request fill the card");
	else
		oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.7,
			      c->known[OOM_CRASH_FREE] ? "one request was refused though a little more is said to be free: in pieces, or taken since" :
						 "one request was refused; the text does not say how much was free");
}

/* This process alone takes nine tenths of the card: what others hold beside it, such as the contexts of the ranks
 * that share a node, would not have helped for long. */
static bool fills(const struct oom_crash *c)
{
	const uint64_t total = num(c, OOM_CRASH_TOTAL);

	return total && c->known[OOM_CRASH_PROCESS] && num(c, OOM_CRASH_PROCESS) > total - total / 10;
}

/* Weights and cache lie outside of PyTorch's allocator: a few MiB of it are all that PyTorch has. */
static bool has_engine(const struct oom_crash *c)
{
	return oom_dialect_is(c, OOM_DIALECT_ENGINE) && c->known[OOM_CRASH_ALLOCATED] && c->bytes[OOM_CRASH_ALLOCATED] < (uint64_t)1 << 30;
}

void oom_causes_of_card(struct oom_crash *c)
{
	const uint64_t tried = num(c, OOM_CRASH_TRIED), total = num(c, OOM_CRASH_TOTAL),
		       left = num(c, OOM_CRASH_FREE), limit = oom_runtime_named(c->framework)->one_buffer,
		       reserved = num(c, OOM_CRASH_RESERVED_TOTAL), process = num(c, OOM_CRASH_PROCESS),
		       held = process > reserved ? process : reserved;
	bool listed;
	const uint64_t away = oom_card_outside(c, &listed);
	char why[160];

	if (counts_unmapped(c) || contradiction(c))
		return;
	/* nothing to speak of is held, and the message does not say what is free */
	if (limit && tried >= limit && !c->known[OOM_CRASH_FREE] && c->known[OOM_CRASH_ALLOCATED] &&
	    total > num(c, OOM_CRASH_ALLOCATED) + tried) {
		refused_though_free(c);
		return;
	}
	/* what is said to be free was counted after the refusal: others who hold the rest have let some of it go */
	if (c->known[OOM_CRASH_FREE] && left > tried && left < tried + tried / 4 && (away > total / 3 || away > OTHERS)) {
		snprintf(why, sizeof(why), "%.2f GiB of the card are held outside this process", (double)away / (double)GIB);
		oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.7, why);
		return;
	}
	/* a card with a hundredth of it left is full: that much is in pieces, or the driver's own */
	if (c->known[OOM_CRASH_FREE] && left > tried && left > total / 64) {
		if (num(c, OOM_CRASH_RESERVED_UNALLOCATED) >= tried)
			stranded(c);
		/* ROCm and Windows keep the last of a full card for themselves */
		if (held > total - total / 8 && left < total / 12)
			oom_cause_say(c, OOM_CAUSE_TOO_LARGE, sure(c) ? 0.4 : 0.6,
				      "the card is full but for what the driver keeps, more than the request though that is");
		if (!c->n_causes)
			refused_though_free(c);
		return;
	}
	/* what is only a difference of printed numbers may be this process's own context and
	 * libraries */
	if (away > 2 * GIB && !fills(c) && (listed || away > total / 3 || away > OTHERS) && away + left >= tried) {
		/* nobody says what this process holds: its libraries may hold it beside PyTorch */
		const bool perhaps_own = !listed && !c->known[OOM_CRASH_PROCESS] && oom_runtime_is(c, OOM_RUNTIME_LIBRARIES), engine = has_engine(c);
		/* to the byte nothing is what Windows and some containers report of any card in use: of 13 labelled texts that
		 * say so without what the process holds none was another process's (tests/crashes, oom_traces) */
		const bool reports_none = !listed && !c->known[OOM_CRASH_PROCESS] && !left;

		snprintf(why, sizeof(why), engine ? "%.2f GiB of the card are held outside PyTorch: by the program's own engine, whose weights and cache PyTorch does not count, or by others" :
			 perhaps_own ? "%.2f GiB of the card are held outside PyTorch: by others, or by this process's own libraries (MIOpen's work space)" :
			 reports_none ? "%.2f GiB of the card are not PyTorch's: others', a desktop's, the context's, or not free only by the driver's report" :
				       "%.2f GiB of the card are held outside this process", (double)away / (double)GIB);
		oom_cause_say(c, engine ? OOM_CAUSE_TOO_LARGE : OOM_CAUSE_OTHER_PROCESS,
			      perhaps_own || engine ? 0.6 : reports_none ? 0.45 : 0.85, why);
		if (engine)
			oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.4, "or other programs hold it");
	}
	stranded(c);
	if (!one_listed(c))
		too_large(c, held);
}

void oom_causes_of_watermark(struct oom_crash *c)
{
	const double max = (double)num(c, OOM_CRASH_TOTAL), other = (double)num(c, OOM_CRASH_OTHER),
		     tried = (double)num(c, OOM_CRASH_TRIED);

	if (max > 0 && other > 0.8 * max)
		oom_cause_say(c, OOM_CAUSE_OTHER_PROCESS, 0.7,
		    "other allocations hold most of the allowed memory");
	else if (max > 0 && other > 0.7 * max && c->known[OOM_CRASH_TRIED] && tried < 0.01 * max)
		oom_cause_say(c, OOM_CAUSE_WATERMARK_CAP, 0.6, "a small request met the watermark");
	oom_cause_say(c, OOM_CAUSE_TOO_LARGE, c->n_causes ? 0.5 : 0.75, "the request exceeds the allowed memory");
}
