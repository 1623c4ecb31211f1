/* The copy of the provider in libsquall-as-tcp-fi.so, which registers as tcp in the place of libfabric's own. */
#include "own_process.h"

static const struct want tcp = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV, .provider = "tcp"};

/* The first entry that fi_getinfo returns for reliable datagrams of a provider, or NULL. */
static struct fi_info *entry(const char *provider, uint32_t protocol)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	hints->ep_attr->type = FI_EP_RDM;
	hints->ep_attr->protocol = protocol;
	hints->fabric_attr->prov_name = strdup(provider);
	int rc = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info);
	CHECK(rc == 0 || rc == -FI_ENODATA);
	fi_freeinfo(hints);
	return info;
}

/* Applications that know tcp ask for its protocol, and look for its name and protocol in the answer. */
static void found(void)
{
	uint32_t protocols[] = {FI_PROTO_UNSPEC, FI_PROTO_XNET};
	for (int i = 0; i < 2; i++) {
		struct fi_info *info = entry("tcp", protocols[i]);
		CHECK(info != NULL);
		for (struct fi_info *one = info; one; one = one->next) {
			CHECK(strcmp(one->fabric_attr->prov_name, "tcp") == 0);
			EQUAL(one->ep_attr->protocol, FI_PROTO_XNET);
			EQUAL(FI_MAJOR(one->fabric_attr->prov_version), 9999);
			CHECK(one->caps & FI_RMA);
		}
		fi_freeinfo(info);
	}
	CHECK(entry("squall", 0) == NULL);
	CHECK(entry("tcp", FI_PROTO_RXM) == NULL);
}

/* The parameters keep their names, and nothing warns of a provider that was not named. */
static void used(void)
{
	use_silently(&tcp);
	CHECK(statistic("tx_packets") > 0);
}

/* Entries of the copy that fi_getinfo returns to an application that names no provider. */
static int unnamed_entries(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int count = 0;
	hints->ep_attr->type = FI_EP_RDM;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info), 0);
	for (struct fi_info *one = info; one; one = one->next)
		count += strcmp(one->fabric_attr->prov_name, "tcp") == 0;
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return count;
}

/* How often standard error has the warning that libfabric lists tcp last, after two calls of fi_getinfo. */
static int warnings(void)
{
	char text[8192];
	int count = 0;
	log_begin();
	CHECK(unnamed_entries() > 0 && unnamed_entries() > 0);
	log_read(text, sizeof(text));
	for (char *at = text; (at = strstr(at, "set FI_PROVIDER=tcp")); at++)
		count++;
	return count;
}

/* libfabric lists the copy behind udp;ofi_rxd unless a list of providers names it. */
static void warned_once(void)
{
	EQUAL(warnings(), 1);
}

static void not_warned(void)
{
	EQUAL(warnings(), 0);
}

static const struct test tests[] = {
	{"found", found, NULL, NULL, 0, {NULL}},
	{"unnamed", warned_once, NULL, NULL, 0, {NULL}},
	{"unnamed_in_log", warned_once, NULL, NULL, 1, {NULL}},
	{"named", not_warned, NULL, NULL, 0, {"FI_PROVIDER=tcp"}},
	{"named_for_an_mpi", not_warned, NULL, NULL, 0, {"I_MPI_OFI_PROVIDER=tcp"}},
	{"used", used, NULL, NULL, 1, {"FI_SQUALL_SHM=no"}},
};

int main(int argc, char **argv)
{
	/* What the caller uses. */
	if (argc == 1)
		unsetenv("FI_PROVIDER");
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
