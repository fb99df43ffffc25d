/* Any bytes as a price list, as CSV and as JSON: offers with a card, a count and prices that
 * somebody charges, or a reason. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "boxes/offers_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *data, size_t size, const char *name)
{
	static struct oom_offers o;     /* the cards are read once */
	struct oom_error err = {{0}};

	o.n = 0;
	if (oom_offers_parse(&o, (const char *)data, size, name, &err) && !err.text[0])
		abort();
	for (size_t i = 0; i < o.n; i++) {
		const struct oom_offer *f = &o.items[i];

		if (f->gpu < 0 || (size_t)f->gpu >= o.gpus.n || !f->gpu_count ||
		    f->ondemand_usd_h <= 0 || f->spot_usd_h <= 0 || f->host_ram_gib < 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check(data, size, "vast/vms.csv");
	check(data, size, "list.json");
	return 0;
}
