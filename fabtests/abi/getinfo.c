/* fi_getinfo: every corner of its contract. */
#include <limits.h>
#include <malloc.h>

#include "abi.h"

static struct fi_info *hints_for_squall(void)
{
	struct fi_info *hints = fi_allocinfo();
	CHECK(hints != NULL);
	hints->fabric_attr->prov_name = strdup("squall");
	return hints;
}

/* The answer to one hint, or NULL. */
static struct fi_info *ask(const char *node, const char *service, uint64_t flags, struct fi_info *hints, int expected)
{
	struct fi_info *info = NULL;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), node, service, flags, hints, &info), expected);
	CHECK((info == NULL) == (expected != 0));
	return info;
}

static int ours(const struct fi_info *info)
{
	return strcmp(info->fabric_attr->prov_name, "squall") == 0;
}

static void null_hints(void)
{
	/* Version 0.0 is what Intel MPI passes first. */
	uint32_t versions[] = {FI_VERSION(0, 0), FI_VERSION(1, 5), FI_VERSION(1, 17)};
	for (int i = 0; i < 3; i++) {
		struct fi_info *info = NULL;
		int found = 0;
		EQUAL(fi_getinfo(versions[i], NULL, NULL, 0, NULL, &info), 0);
		for (struct fi_info *p = info; p; p = p->next) {
			if (!ours(p))
				continue;
			found++;
			CHECK(p->src_addr && p->src_addrlen);
			CHECK(p->tx_attr && p->rx_attr && p->ep_attr && p->domain_attr && p->fabric_attr);
			CHECK(p->mode == 0 && p->domain_attr->mode == 0);
			EQUAL(p->ep_attr->type, FI_EP_RDM);
			CHECK(p->caps & FI_LOCAL_COMM && p->caps & FI_REMOTE_COMM);
			CHECK((p->tx_attr->caps & ~p->caps) == 0 && (p->rx_attr->caps & ~p->caps) == 0);
			CHECK(p->domain_attr->name && p->fabric_attr->name);
			/* What others free: a copy and its end. */
			struct fi_info *copy = fi_dupinfo(p);
			CHECK(copy && copy->src_addr != p->src_addr);
			fi_freeinfo(copy);
		}
		CHECK(found > 0);
		fi_freeinfo(info);
	}
}

/* A line of sysfs about an interface, or NULL. */
static char *sysfs(const char *interface, const char *what)
{
	static char line[256];
	char path[512];
	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", interface, what);
	FILE *f = fopen(path, "r");
	char *got = f ? fgets(line, sizeof(line), f) : NULL;
	if (f)
		fclose(f);
	if (got)
		line[strcspn(line, "\n")] = 0;
	return got;
}

/* The place of an interface's device on the PCI bus, as sysfs has it; 0 where it has none. */
static int pci(const char *interface, struct fi_pci_attr *at)
{
	char path[256], real[PATH_MAX];
	unsigned domain, bus, device, function;
	int found = 0;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", interface);
	for (char *word = realpath(path, real) ? strtok(real, "/") : NULL; word; word = strtok(NULL, "/"))
		if (sscanf(word, "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4) {
			*at = (struct fi_pci_attr){domain, bus, device, function};
			found = 1;
		}
	return found;
}

static int same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static void same_device(const struct fid_nic *a, const struct fid_nic *b)
{
	CHECK(a != b && a->device_attr != b->device_attr && a->bus_attr != b->bus_attr && a->link_attr != b->link_attr);
	CHECK(a->fid.fclass == b->fid.fclass && a->device_attr->name != b->device_attr->name);
	CHECK(same(a->device_attr->name, b->device_attr->name));
	CHECK(same(a->device_attr->device_id, b->device_attr->device_id));
	CHECK(same(a->device_attr->device_version, b->device_attr->device_version));
	CHECK(same(a->device_attr->vendor_id, b->device_attr->vendor_id));
	CHECK(same(a->device_attr->driver, b->device_attr->driver));
	CHECK(same(a->device_attr->firmware, b->device_attr->firmware));
	EQUAL(a->bus_attr->bus_type, b->bus_attr->bus_type);
	EQUAL(a->bus_attr->attr.pci.domain_id, b->bus_attr->attr.pci.domain_id);
	EQUAL(a->bus_attr->attr.pci.bus_id, b->bus_attr->attr.pci.bus_id);
	EQUAL(a->bus_attr->attr.pci.device_id, b->bus_attr->attr.pci.device_id);
	EQUAL(a->bus_attr->attr.pci.function_id, b->bus_attr->attr.pci.function_id);
	CHECK(same(a->link_attr->address, b->link_attr->address));
	CHECK(same(a->link_attr->network_type, b->link_attr->network_type));
	EQUAL(a->link_attr->mtu, b->link_attr->mtu);
	EQUAL(a->link_attr->speed, b->link_attr->speed);
	EQUAL(a->link_attr->state, b->link_attr->state);
}

/* fi_nic(3): what the kernel says of the interface, in memory that survives whoever it was copied from. */
static void devices(void)
{
	int loopback = 0;
	for (int local = 0; local < 2; local++) {
		struct fi_info *hints = hints_for_squall();
		struct fi_info *info = ask(local ? "127.0.0.1" : NULL, NULL, local ? FI_SOURCE : 0, hints, 0);
		fi_freeinfo(hints);
		for (struct fi_info *p = info; p; p = p->next) {
			struct fid_nic *nic = p->nic;
			const char *name = p->domain_attr->name, *line;
			CHECK(nic && nic->fid.fclass == FI_CLASS_NIC && !nic->prov_attr);
			CHECK(nic->device_attr && nic->bus_attr && nic->link_attr);
			CHECK(same(nic->device_attr->name, name));
			loopback += strcmp(name, "lo") == 0;
			CHECK(same(nic->link_attr->network_type, "Ethernet"));
			CHECK(nic->link_attr->state == FI_LINK_UP || nic->link_attr->state == FI_LINK_UNKNOWN);
			if ((line = sysfs(name, "address")))
				CHECK(same(nic->link_attr->address, line));
			if ((line = sysfs(name, "mtu")))
				EQUAL(nic->link_attr->mtu, atol(line));
			line = sysfs(name, "speed");
			EQUAL(nic->link_attr->speed, line && atol(line) > 0 ? atol(line) * 1000000 : 0);
			line = sysfs(name, "device/vendor");
			CHECK(same(nic->device_attr->vendor_id, line));
			/* A virtual interface has no device, so no driver. */
			if (strcmp(name, "lo") == 0)
				CHECK(!nic->device_attr->driver);
			/* Where a device is on its bus is not told unasked: MPICH asserts that its hwloc knows it, too. */
			struct fi_pci_attr at, *said = &nic->bus_attr->attr.pci;
			if (getenv("FI_SQUALL_PCI") && pci(name, &at)) {
				EQUAL(nic->bus_attr->bus_type, FI_BUS_PCI);
				CHECK(said->domain_id == at.domain_id && said->bus_id == at.bus_id);
				CHECK(said->device_id == at.device_id && said->function_id == at.function_id);
			} else {
				EQUAL(nic->bus_attr->bus_type, FI_BUS_UNSPEC);
			}
			char *text = fi_tostr(p, FI_TYPE_INFO), wanted[128];
			snprintf(wanted, sizeof(wanted), "fi_device_attr:\n            name: %s\n", name);
			CHECK(strstr(text, wanted) && strstr(text, "network_type: Ethernet\n"));
			/* Without room nothing is written, and with little no more than that. */
			char little[32];
			memset(little, 'x', sizeof(little));
			little[0] = 0;
			CHECK(nic->fid.ops->tostr(&nic->fid, little, 16) == 0);
			CHECK(strlen(little) == 15 && little[16] == 'x');
			int unknown = -1;
			EQUAL(fi_control(&nic->fid, FI_GETWAIT, &unknown), -FI_ENOSYS);
		}
		/* A copy of a copy, whose originals are gone. */
		struct fi_info *copy = fi_dupinfo(info), *third;
		same_device(info->nic, copy->nic);
		third = fi_dupinfo(copy);
		fi_freeinfo(copy);
		same_device(info->nic, third->nic);
		char name[64];
		snprintf(name, sizeof(name), "%s", info->domain_attr->name);
		fi_freeinfo(info);
		CHECK(same(third->nic->device_attr->name, name));
		/* It is no hindrance as a hint, nor for a domain. */
		struct fi_info *again = NULL;
		struct fid_fabric *fabric;
		struct fid_domain *domain;
		EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, third, &again), 0);
		EQUAL(fi_fabric(again->fabric_attr, &fabric, NULL), 0);
		EQUAL(fi_domain(fabric, again, &domain, NULL), 0);
		fi_freeinfo(again);
		EQUAL(fi_close(&domain->fid), 0);
		EQUAL(fi_close(&fabric->fid), 0);
		fi_freeinfo(third);
	}
	CHECK(loopback > 0);
}

static void missing_attributes(void)
{
	/* Any attribute may be NULL. */
	for (int mask = 0; mask < 16; mask++) {
		struct fi_tx_attr tx = {0};
		struct fi_rx_attr rx = {0};
		struct fi_ep_attr ep = {.type = FI_EP_RDM};
		struct fi_domain_attr domain = {0};
		struct fi_fabric_attr fabric = {.prov_name = "squall"};
		struct fi_info hints = {
			.caps = FI_MSG,
			.mode = ~0ULL,
			.tx_attr = mask & 1 ? &tx : NULL,
			.rx_attr = mask & 2 ? &rx : NULL,
			.ep_attr = mask & 4 ? &ep : NULL,
			.domain_attr = mask & 8 ? &domain : NULL,
			.fabric_attr = &fabric,
		};
		struct fi_info *info = ask(NULL, NULL, 0, &hints, 0);
		CHECK(ours(info));
		fi_freeinfo(info);
	}
}

static void capabilities(void)
{
	struct fi_info *hints = hints_for_squall();
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	struct fi_info *info = ask(NULL, NULL, 0, hints, 0);
	CHECK(info->caps & FI_TAGGED && info->caps & FI_SEND && info->caps & FI_RECV);
	CHECK(info->caps & FI_DIRECTED_RECV && !(info->caps & (FI_MSG | FI_RMA)));
	fi_freeinfo(info);
	/* libfabric 2.6's lnx passes these hints. */
	hints->caps = FI_MSG | FI_AV_USER_ID;
	info = ask(NULL, NULL, 0, hints, 0);
	CHECK(info->caps & FI_AV_USER_ID && info->domain_attr->caps & FI_AV_USER_ID);
	fi_freeinfo(info);
	hints->caps = FI_MSG | FI_RMA;
	info = ask(NULL, NULL, 0, hints, 0);
	CHECK(!(info->caps & FI_AV_USER_ID) && !(info->domain_attr->caps & FI_AV_USER_ID));
	CHECK(info->caps & FI_REMOTE_WRITE && !(info->caps & FI_TAGGED) && !(info->caps & FI_DIRECTED_RECV));
	fi_freeinfo(info);
	uint64_t missing[] = {FI_MULTICAST, FI_HMEM, FI_NAMED_RX_CTX};
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
		hints->caps = FI_MSG | missing[i];
		ask(NULL, NULL, 0, hints, -FI_ENODATA);
	}
	fi_freeinfo(hints);
}

static void rejected(void)
{
#define REJECT(field, value)                                                      \
	do {                                                                      \
		struct fi_info *hints = hints_for_squall();                       \
		hints->ep_attr->type = FI_EP_RDM;                                 \
		hints->field = value;                                             \
		ask(NULL, NULL, 0, hints, -FI_ENODATA);                           \
		fi_freeinfo(hints);                                               \
	} while (0)
	REJECT(ep_attr->type, FI_EP_MSG);
	REJECT(ep_attr->type, FI_EP_DGRAM);
	REJECT(ep_attr->protocol, FI_PROTO_RXM);
	REJECT(ep_attr->max_msg_size, (size_t)1 << 33);
	REJECT(ep_attr->max_order_raw_size, (size_t)1 << 33);
	REJECT(ep_attr->tx_ctx_cnt, 2);
	REJECT(ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
	REJECT(tx_attr->inject_size, 1 << 20);
	REJECT(tx_attr->iov_limit, 5);
	REJECT(tx_attr->rma_iov_limit, 5);
	REJECT(tx_attr->comp_order, FI_ORDER_STRICT);
	REJECT(tx_attr->msg_order, 1ULL << 20);
	REJECT(tx_attr->caps, FI_HMEM);
	REJECT(rx_attr->iov_limit, 5);
	REJECT(rx_attr->msg_order, 1ULL << 20);
	REJECT(domain_attr->cq_data_size, 9);
	REJECT(domain_attr->mr_key_size, 9);
	REJECT(domain_attr->max_ep_stx_ctx, 1);
	REJECT(domain_attr->av_type, 77);
	REJECT(domain_attr->threading, 77);
	REJECT(domain_attr->name, strdup("no-such-interface"));
	REJECT(fabric_attr->name, strdup("10.254.254.0/30"));
	REJECT(addr_format, FI_ADDR_EFA);
#undef REJECT
}

/* Order is kept when it is asked for, by a bit or by a size, and costs nothing otherwise. */
static void ordered(void)
{
	struct fi_info *hints = hints_for_squall();
	struct fi_info *info = ask(NULL, NULL, 0, hints, 0);
	EQUAL(info->tx_attr->msg_order, FI_ORDER_SAS);
	EQUAL(info->ep_attr->max_order_raw_size, 0);
	CHECK(info->ep_attr->protocol != FI_PROTO_UNSPEC);
	hints->ep_attr->protocol = info->ep_attr->protocol;
	fi_freeinfo(info);
	hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_RMA_RAW;
	hints->ep_attr->max_order_waw_size = 100;
	info = ask(NULL, NULL, 0, hints, 0);
	EQUAL(info->tx_attr->msg_order, FI_ORDER_SAS | FI_ORDER_RMA_RAW | FI_ORDER_WAW);
	EQUAL(info->rx_attr->msg_order, info->tx_attr->msg_order);
	EQUAL(info->ep_attr->max_order_raw_size, info->ep_attr->max_msg_size);
	EQUAL(info->ep_attr->max_order_waw_size, info->ep_attr->max_msg_size);
	EQUAL(info->ep_attr->max_order_war_size, 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void granted(void)
{
	struct fi_info *hints = hints_for_squall();
	hints->caps = FI_MSG | FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
	hints->rx_attr->op_flags = FI_COMPLETION;
	hints->domain_attr->cq_data_size = 4;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->tx_attr->tclass = FI_TC_LOW_LATENCY;
	enum fi_threading threads[] = {FI_THREAD_SAFE, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION};
	enum fi_av_type avs[] = {FI_AV_MAP, FI_AV_TABLE};
	enum fi_progress models[] = {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL};
	for (int i = 0; i < 12; i++) {
		hints->domain_attr->threading = threads[i % 3];
		hints->domain_attr->av_type = avs[i / 3 % 2];
		hints->domain_attr->control_progress = hints->domain_attr->data_progress = models[i / 6];
		struct fi_info *info = ask(NULL, NULL, 0, hints, 0);
		EQUAL(info->domain_attr->threading, threads[i % 3]);
		EQUAL(info->domain_attr->av_type, avs[i / 3 % 2]);
		EQUAL(info->domain_attr->data_progress, models[i / 6]);
		EQUAL(info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode, 0);
		CHECK(info->domain_attr->cq_data_size >= 4);
		EQUAL(info->tx_attr->op_flags, hints->tx_attr->op_flags);
		EQUAL(info->tx_attr->msg_order, FI_ORDER_SAS);
		CHECK(info->ep_attr->max_msg_size >= (size_t)1 << 30 && info->tx_attr->inject_size >= 64);
		CHECK(info->tx_attr->iov_limit >= 3 && info->ep_attr->mem_tag_format >> 63);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
}

/* API versions before 1.5 had FI_MR_BASIC and FI_MR_SCALABLE. An application that left the choice to libfabric's
 * own providers got FI_MR_BASIC. */
static void old_registration(void)
{
	const uint32_t old[] = {FI_VERSION(1, 0), FI_VERSION(1, 4)};
	const int modes[] = {FI_MR_BASIC, FI_MR_SCALABLE};
	struct fi_info *hints = hints_for_squall(), *info = NULL;
	/* Charm++ passes these hints. */
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->caps = FI_TAGGED | FI_RMA | FI_REMOTE_READ;
	for (int i = 0; i < 2; i++) {
		int found = 0;
		hints->domain_attr->mr_mode = FI_MR_UNSPEC;
		EQUAL(fi_getinfo(old[i], NULL, NULL, 0, hints, &info), 0);
		/* Each interface has both answers, basic first. */
		for (struct fi_info *p = info; p; p = p->next, found++) {
			EQUAL(p->domain_attr->mr_mode, modes[found % 2]);
			CHECK(p->mode == 0 && p->domain_attr->mode == 0);
			if (found % 2 == 0)
				CHECK(p->next && same(p->domain_attr->name, p->next->domain_attr->name));
		}
		fi_freeinfo(info);
		/* The hints have no domain attributes at all. */
		EQUAL(fi_getinfo(old[i], NULL, NULL, 0, NULL, &info), 0);
		for (struct fi_info *p = info; p; p = p->next)
			if (ours(p)) {
				EQUAL(p->domain_attr->mr_mode, FI_MR_BASIC);
				break;
			}
		fi_freeinfo(info);
		/* An application that asks for one of the two modes gets that mode. */
		for (int mode = 0; mode < 2; mode++) {
			hints->domain_attr->mr_mode = modes[mode];
			EQUAL(fi_getinfo(old[i], NULL, NULL, 0, hints, &info), 0);
			for (struct fi_info *p = info; p; p = p->next)
				EQUAL(p->domain_attr->mr_mode, modes[mode]);
			fi_freeinfo(info);
		}
		/* API versions before 1.5 had no mode bits. */
		hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
		EQUAL(fi_getinfo(old[i], NULL, NULL, 0, hints, &info), -FI_ENODATA);
	}
	/* FI_MR_BASIC stands alone (fi_mr(3)). */
	hints->domain_attr->mr_mode = FI_MR_BASIC | FI_MR_PROV_KEY;
	ask(NULL, NULL, 0, hints, -FI_ENODATA);
	hints->domain_attr->mr_mode = FI_MR_UNSPEC;
	info = ask(NULL, NULL, 0, hints, 0);
	EQUAL(info->domain_attr->mr_mode, 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* FI_MR_BASIC means that the provider chooses the keys, whatever the application asks for, and that remote
 * addresses are virtual. */
static void basic_registration(void)
{
	static unsigned char there[2][4096], here[4096];
	struct want want = {.caps = FI_MSG | FI_RMA, .version = FI_VERSION(1, 0)};
	struct node one, two;
	struct fid_mr *mr[2];
	struct fi_cq_tagged_entry e;
	int context;
	abi_open(&one, &want);
	abi_open(&two, &want);
	EQUAL(one.info->domain_attr->mr_mode, FI_MR_BASIC);
	fi_addr_t to = abi_insert(&one, &two.name);
	for (int i = 0; i < 2; i++) {
		abi_fill(there[i], sizeof(there[i]), (unsigned)i);
		EQUAL(fi_mr_reg(two.domain, there[i], sizeof(there[i]), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr[i], NULL), 0);
	}
	CHECK(fi_mr_key(mr[0]) != fi_mr_key(mr[1]));
	for (int i = 0; i < 2; i++) {
		RETRY(&one, fi_read(one.ep, here, sizeof(here) - 100, NULL, to, (uintptr_t)&there[i][100], fi_mr_key(mr[i]), &context));
		abi_expect(&one, &two, &e);
		CHECK(memcmp(here, &there[i][100], sizeof(here) - 100) == 0);
	}
	/* Offsets are not valid as remote addresses in this mode. */
	struct fi_cq_err_entry err;
	RETRY(&one, fi_read(one.ep, here, 8, NULL, to, 0, fi_mr_key(mr[0]), &context));
	abi_expect_error(&one, &two, &err);
	/* The domain has one mode, for applications of any version. */
	struct fi_info *hints = hints_for_squall(), *info = NULL;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->domain = two.domain;
	EQUAL(fi_getinfo(FI_VERSION(1, 0), "127.0.0.1", NULL, FI_SOURCE, hints, &info), 0);
	CHECK(info->domain_attr->mr_mode == FI_MR_BASIC && !info->next);
	fi_freeinfo(info);
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	EQUAL(fi_getinfo(FI_VERSION(1, 0), "127.0.0.1", NULL, FI_SOURCE, hints, &info), -FI_ENODATA);
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info = ask("127.0.0.1", NULL, FI_SOURCE, hints, 0);
	EQUAL(info->domain_attr->mr_mode, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
	fi_freeinfo(info);
	hints->domain_attr->domain = NULL;
	fi_freeinfo(hints);
	for (int i = 0; i < 2; i++)
		EQUAL(fi_close(&mr[i]->fid), 0);
	abi_close(&one);
	abi_close(&two);
}

/* Where the manual leaves a choice to providers, squall chooses as libfabric's own providers do, because programs
 * were tested with those. */
static void choices_of_libfabrics_providers(void)
{
	struct fi_info *hints = hints_for_squall();
	hints->ep_attr->type = FI_EP_RDM;
	/* Secondary capabilities that cost nothing are granted unasked. */
	hints->caps = FI_MSG | FI_RMA;
	struct fi_info *info = ask(NULL, NULL, 0, hints, 0);
	CHECK(info->caps & FI_MULTI_RECV && info->caps & FI_RMA_EVENT);
	CHECK(info->rx_attr->caps & FI_MULTI_RECV && !(info->tx_attr->caps & FI_MULTI_RECV));
	CHECK(info->ep_attr->mem_tag_format == 0xAAAAAAAAAAAAAAAAULL);
	fi_freeinfo(info);
	hints->caps = FI_MSG | FI_SEND;
	info = ask(NULL, NULL, 0, hints, 0);
	CHECK(!(info->caps & (FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT)));
	fi_freeinfo(info);
	/* Capabilities of the other side are ignored where an older application names them. */
	hints->caps = FI_MSG;
	hints->tx_attr->caps = hints->rx_attr->caps = FI_MSG | FI_SEND | FI_RECV;
	info = ask(NULL, NULL, 0, hints, 0);
	CHECK(info->tx_attr->caps & FI_SEND && !(info->tx_attr->caps & FI_RECV));
	CHECK(info->rx_attr->caps & FI_RECV && !(info->rx_attr->caps & FI_SEND));
	fi_freeinfo(info);
	/* The answer repeats a size that is asked for. */
	hints->tx_attr->caps = hints->rx_attr->caps = 0;
	hints->tx_attr->size = 17;
	hints->rx_attr->size = 18;
	hints->tx_attr->inject_size = 65;
	hints->tx_attr->iov_limit = 2;
	hints->tx_attr->rma_iov_limit = 3;
	hints->rx_attr->iov_limit = 1;
	info = ask(NULL, NULL, 0, hints, 0);
	CHECK(info->tx_attr->size == 17 && info->rx_attr->size == 18 && info->tx_attr->inject_size == 65);
	CHECK(info->tx_attr->iov_limit == 2 && info->tx_attr->rma_iov_limit == 3 && info->rx_attr->iov_limit == 1);
	fi_freeinfo(info);
	/* There is no such version of this protocol yet. */
	hints->ep_attr->protocol_version = 2;
	ask(NULL, NULL, 0, hints, -FI_ENODATA);
	fi_freeinfo(hints);
}

static void addresses(void)
{
	struct fi_info *hints = hints_for_squall();
	hints->ep_attr->type = FI_EP_RDM;
	/* Ours. */
	struct fi_info *info = ask("127.0.0.1", "9228", FI_SOURCE, hints, 0);
	struct sockaddr_in *in = info->src_addr;
	EQUAL(info->addr_format, FI_SOCKADDR_IN);
	EQUAL(ntohs(in->sin_port), 9228);
	EQUAL(ntohl(in->sin_addr.s_addr), INADDR_LOOPBACK);
	CHECK(info->dest_addr == NULL);
	fi_freeinfo(info);
	/* Theirs: the source is where the route leaves. */
	info = ask("127.0.0.1", "9228", 0, hints, 0);
	in = info->dest_addr;
	CHECK(in != NULL);
	EQUAL(ntohs(in->sin_port), 9228);
	in = info->src_addr;
	EQUAL(ntohl(in->sin_addr.s_addr), INADDR_LOOPBACK);
	EQUAL(in->sin_port, 0);
	/* Back as hints. */
	struct fi_info *second = fi_dupinfo(info);
	fi_freeinfo(info);
	info = ask(NULL, NULL, 0, second, 0);
	CHECK(info->dest_addr && memcmp(info->dest_addr, second->dest_addr, sizeof(*in)) == 0);
	fi_freeinfo(second);
	fi_freeinfo(info);
	/* Nowhere, and not a number. */
	ask("g00n13s.invalid", "9228", 0, hints, -FI_ENODATA);
	ask("localhost", NULL, FI_SOURCE | FI_NUMERICHOST, hints, -FI_ENODATA);
	ask("192.0.2.77", NULL, FI_SOURCE, hints, -FI_ENODATA);
	/* An address of this host that is no interface's own, such as Debian's address of the host name. */
	info = ask("127.0.1.1", "9228", FI_SOURCE, hints, 0);
	in = info->src_addr;
	EQUAL(ntohs(in->sin_port), 9228);
	EQUAL(ntohl(in->sin_addr.s_addr), 0x7f000101);
	fi_freeinfo(info);
	/* IPv6, if this host has it. */
	hints->addr_format = FI_SOCKADDR_IN6;
	if (fi_getinfo(FI_VERSION(1, 17), "::1", "7", FI_SOURCE, hints, &info) == 0) {
		struct sockaddr_in6 *in6 = info->src_addr;
		EQUAL(info->addr_format, FI_SOCKADDR_IN6);
		EQUAL(in6->sin6_family, AF_INET6);
		EQUAL(ntohs(in6->sin6_port), 7);
		fi_freeinfo(info);
	}
	ask("127.0.0.1", NULL, FI_SOURCE, hints, -FI_ENODATA);
	/* Flags that nobody here knows. */
	hints->addr_format = FI_FORMAT_UNSPEC;
	info = ask(NULL, NULL, 1ULL << 60, hints, 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void open_objects(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	struct fi_info *hints = hints_for_squall();
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->domain = n.domain;
	hints->fabric_attr->fabric = n.fabric;
	struct fi_info *info = ask("127.0.0.1", NULL, FI_SOURCE, hints, 0);
	CHECK(strcmp(info->domain_attr->name, n.info->domain_attr->name) == 0);
	CHECK(info->domain_attr->domain == n.domain);
	fi_freeinfo(info);
	/* Its registration modes are what they are. */
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;
	info = ask("127.0.0.1", NULL, FI_SOURCE, hints, 0);
	EQUAL(info->domain_attr->mr_mode, 0);
	fi_freeinfo(info);
	abi_close(&n);
	want.mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	abi_open(&n, &want);
	hints->domain_attr->domain = n.domain;
	hints->fabric_attr->fabric = n.fabric;
	info = ask("127.0.0.1", NULL, FI_SOURCE, hints, 0);
	EQUAL(info->domain_attr->mr_mode, want.mr_mode);
	fi_freeinfo(info);
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR;
	ask("127.0.0.1", NULL, FI_SOURCE, hints, -FI_ENODATA);
	hints->domain_attr->domain = NULL;
	hints->fabric_attr->fabric = NULL;
	fi_freeinfo(hints);
	abi_close(&n);
}

/* Structures and tables that grow from one libfabric to the next. A later library reads beyond the size in the headers of this
 * build, in fi_dupinfo and in calls through the tables. */
static void later_releases(void)
{
	struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *cntr;
	struct node n;
	const struct want want = {.caps = FI_MSG};
	abi_open(&n, &want);
	const void *parts[] = {n.info, n.info->tx_attr, n.info->rx_attr, n.info->ep_attr, n.info->domain_attr, n.info->fabric_attr};
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		CHECK(malloc_usable_size((void *)parts[i]) >= 512);
	/* The ninth function of each table, export_xpu(3) of 2.7, and the twelfth of a domain's, xpu_ctx. */
	EQUAL(fi_cntr_open(n.domain, &cntr_attr, &cntr, NULL), 0);
	const size_t *tables[] = {(size_t *)n.ep->ops, (size_t *)n.cq->ops, (size_t *)cntr->ops};
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
		CHECK(tables[i][0] >= 9 * sizeof(void *));
		int (*export_xpu)(void *, uint64_t, void *) = (void *)tables[i][8];
		EQUAL(export_xpu(n.ep, 0, NULL), -FI_ENOSYS);
	}
	CHECK(n.domain->ops->size >= 13 * sizeof(void *));
	int (*xpu_ctx)(void *, void *, void *, void *) = (void *)((size_t *)n.domain->ops)[12];
	EQUAL(xpu_ctx(n.domain, NULL, NULL, NULL), -FI_ENOSYS);
	EQUAL(fi_close(&cntr->fid), 0);
	abi_close(&n);
}

int main(void)
{
	RUN(null_hints);
	RUN(devices);
	RUN(missing_attributes);
	RUN(capabilities);
	RUN(rejected);
	RUN(granted);
	RUN(old_registration);
	RUN(basic_registration);
	RUN(choices_of_libfabrics_providers);
	RUN(ordered);
	RUN(addresses);
	RUN(open_objects);
	RUN(later_releases);
	printf("%d checks\n", abi_checks);
	return 0;
}
