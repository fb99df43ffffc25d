/* What lists say of one machine more than once, and how long it takes to read many rows. */

#include "offers_case.h"

#define HEADER "provider,instance,region,gpu,gpu_count,host_ram_gib,disk_gb,ondemand_usd_h,spot_usd_h,price_date\n"

static struct oom_offer folded(const char *rows)
{
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	struct oom_offer f;
	char text[600];

	snprintf(text, sizeof(text), HEADER "%s", rows);
	read_text(&o, "own.csv", text, OOM_OK, &err);
	assert_int_equal(o.n, 1);
	assert_int_equal(o.duplicates, 1);
	f = o.items[0];
	oom_offers_release(&o);
	return f;
}

/* An old price is not the newer one's, however cheap; the order of the rows does not matter. */
static void test_dates(void **state)
{
	static const char *const orders[] = {"aws,x,us,T4,1,,,1,0.5,2020-01-01\naws,x,us,T4,1,,,3,,2999-01-01\n",
					     "aws,x,us,T4,1,,,3,,2999-01-01\naws,x,us,T4,1,,,1,0.5,2020-01-01\n"};
	struct oom_offer f;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		f = folded(orders[i]);
		assert_true(f.ondemand_usd_h == 3 && isnan(f.spot_usd_h));
		assert_string_equal(f.price_date, "2999-01-01");
		assert_false(oom_offer_is_stale(&f));
	}
	/* a list without dates was taken today; what it does not say is as old as the row that does */
	f = folded("aws,x,us,T4,1,,,1,0.5,2999-01-01\naws,x,us,T4,1,,,3,,\n");
	assert_true(f.ondemand_usd_h == 3 && f.spot_usd_h == 0.5);
	assert_string_equal(f.price_date, "2999-01-01");
}

/* Zones of one region: the cheaper price, and what both have. */
static void test_zones(void **state)
{
	const struct oom_offer f = folded("aws,x,us,T4,1,64,200,2,,2999-01-01\naws,x,us,T4,1,32,,1,,2999-01-01\n");

	(void)state;
	assert_true(f.ondemand_usd_h == 1 && f.host_ram_gib == 32);
	assert_true(f.disk_gib > 186 && f.disk_gib < 187);
}

/* Rows whose cards the table has, and rows whose cards it has not, are told apart in lists of any length. */
static void test_many(void **state)
{
	static const char *const cards[] = {"H100", "Zeta 9", "RTX4090", "Zeta 10 Ultra"};
	const size_t rows = 50000, size = rows * 64;
	char *const text = malloc(size);
	struct oom_offers o = {0};
	struct oom_error err = {{0}};
	size_t n = 0;

	(void)state;
	assert_non_null(text);
	n += (size_t)snprintf(text, size, "instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\n");
	for (size_t i = 0; i < rows; i++)
		n += (size_t)snprintf(text + n, size - n, "m%zu,us,2.5,1,%s,%d,False\n", i, cards[i % 4], i % 4 == 0 ? 80 : 24);
	assert_int_equal(oom_offers_parse(&o, text, n, "many.csv", &err), OOM_OK);
	assert_int_equal(o.n, 25000);
	assert_int_equal(o.unknown_gpu, 25000);
	oom_offers_release(&o);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dates),
		cmocka_unit_test(test_zones),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
