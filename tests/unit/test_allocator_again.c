/* What a replay leaves out because it repeats itself, and the count of holes that this rests on, on random blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "step/allocator_blocks.h"

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % n;
}

static uint64_t any_size(void)
{
	return (1 + draw(80)) << (draw(2) ? 19 : 12);
}

enum { LASTING = 40, REQUESTS = 200, BESIDE = 12 };

/* The same requests each time, of which at most BESIDE live at once and none outlives the others; their addresses. */
static void pass(struct oom_replay *r, uint64_t from, uint64_t address[REQUESTS])
{
	int32_t live[BESIDE];

	seed = from;
	for (int i = 0; i < BESIDE; i++)
		live[i] = -1;
	for (int i = 0; i < REQUESTS; i++) {
		const uint64_t slot = draw(BESIDE);

		oom_free(r, live[slot]);
		live[slot] = oom_allocate(r, any_size());
		address[i] = live[slot] < 0 ? UINT64_MAX : r->blocks[live[slot]].addr;
	}
	for (int i = 0; i < BESIDE; i++)
		oom_free(r, live[i]);
}

/* Blocks that stay, and free ones between them. */
static void lay_out(struct oom_replay *r, const struct oom_alloc_rules *rules, uint64_t from)
{
	int32_t lasts[LASTING];

	oom_replay_clear(r, rules);
	seed = from;
	for (int i = 0; i < LASTING; i++)
		lasts[i] = oom_allocate(r, any_size());
	for (int i = 0; i < LASTING; i += 3)
		oom_free(r, lasts[i]);
}

/* Where marks are equal the same requests get the same addresses and fetch nothing: what a replay of many micro-batches
 * leaves out.  In an arena they are equal at once, for all of a pass comes back, with segments after a pass that fetched
 * none. */
static void passes(void **state)
{
	static const struct oom_alloc_rules rules[] = {{.expandable = true}, {.down = true}};
	static struct oom_replay r;
	static uint64_t first[REQUESTS], again[REQUESTS];
	int grown = 0;

	(void)state;
	for (uint64_t k = 1; k <= 200; k++) {
		const bool open_end = k % 2 == 0;

		lay_out(&r, &rules[k % 2], k);
		for (int times = 0; times < 4; times++) {
			const uint64_t mark = oom_replay_mark(&r);
			uint64_t reserved = r.reserved;
			bool same;

			pass(&r, 1000 + k, first);
			same = oom_replay_mark(&r) == mark;
			assert_true(same || (!open_end && r.reserved > reserved));
			grown += open_end && r.reserved > reserved;
			if (!same)
				continue;
			reserved = r.reserved;
			pass(&r, 1000 + k, again);
			assert_memory_equal(first, again, sizeof(first));
			assert_int_equal(r.reserved, reserved);
		}
	}
	/* or the test is of nothing */
	assert_true(grown > 50);
	oom_replay_release(&r);
}

/* Arenas on a card that is full: pages go, which leaves holes, and others come in their place. */
static void holes(void **state)
{
	static struct oom_replay r;
	static uint64_t address[REQUESTS];
	size_t sum = 0;

	(void)state;
	for (uint64_t k = 1; k <= 400; k++) {
		struct oom_alloc_rules rules = {.expandable = true};

		lay_out(&r, &rules, k);
		pass(&r, 1000 + k, address);
		rules.limit = r.peak * (70 + draw(30)) / 100;
		lay_out(&r, &rules, k);
		for (uint64_t times = 0; times < 3; times++)
			pass(&r, 1000 * times + k, address);
		for (unsigned pool = 0; pool < OOM_POOLS; pool++) {
			size_t n = 0;

			for (int32_t b = r.pool[pool].head; b >= 0; b = r.blocks[b].next)
				n += r.blocks[b].state == HOLE;
			assert_int_equal(n, r.pool[pool].holes);
			sum += n;
		}
	}
	assert_true(sum > 50);
	oom_replay_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(passes),
		cmocka_unit_test(holes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
