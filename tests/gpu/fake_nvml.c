/* A library with NVML's calls that says what a file says: the tests' stand-in for a driver and its GPUs.
 *
 * DRAY_FAKE_NVML names the file; it is read anew at each call, so whoever appends a line changes the world. A line is
 * "key value..."; the last line of a key counts, lists are all lines of their key. N is a GPU's index.
 *
 *   init CODE | driver 570.86.15 | cuda 12080 | count 2
 *   error CALL CODE           that call answers so, for every GPU        N.error CALL CODE   for one; CALL may be `*`
 *   missing CALL              an older library: as if it had not the call (FUNCTION_NOT_FOUND)
 *   N.uuid N.name N.pci (hex domain bus device) N.capability (major minor) N.memory (total used, bytes) N.max_clock N.clock
 *   N.util N.power (mW) N.energy (mJ) N.temperature N.slowed (bits) N.persistence N.ecc (corrected uncorrected) N.accounting
 *   N.process PID BYTES (-1: not told) | N.gone PID      compute processes; `gone` after it takes them away
 *   N.graphics PID BYTES
 *   N.share PID MICROSECONDS PERCENT                     process utilisation samples
 *   N.peak MICROSECONDS PERCENT                          utilisation samples of the whole GPU
 *   N.account PID PERCENT PEAKBYTES MILLISECONDS
 *   N.mig UUID TOTAL USED NAME...                        an instance; `N.mig_mode 1` alone: cut up, without any
 *   reap 1                                               processes that have ended are not listed, as with a real driver
 *   hang CALL SECONDS                                    the driver does not answer for so long
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALISED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, FUNCTION_NOT_FOUND = 13, VERSION_MISMATCH = 25 };
enum { MOST = 64, LIST = 4096 };

struct device { int index, part; }; /* part: -1 for the whole GPU */
typedef struct device *Device;
typedef unsigned long long Big;

struct memory { Big total, free, used; };
struct memory_v2 { unsigned version; Big total, reserved, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct rates { unsigned gpu, memory; };
struct process { unsigned pid; Big memory; unsigned gpu_instance, instance; };
struct old_process { unsigned pid; Big memory; };
struct share { unsigned pid; Big t; unsigned sm, memory, encoder, decoder; };
struct sample { Big t; Big value; };
struct account { unsigned gpu, memory; Big peak, time, start; unsigned running, reserved[5]; };

static struct device all[MOST][MOST + 1];
static int ready;

/* Calls `each` with what follows `key` on every line of it, from the first line to the last. */
static void lines(const char *key, void (*each)(const char *rest, void *with), void *with)
{
    const char *path = getenv("DRAY_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    size_t size = strlen(key);
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, size) && (line[size] == ' ' || !line[size]))
            each(line[size] ? line + size + 1 : "", with);
    }
    fclose(file);
}

static void keep(const char *rest, void *with) { snprintf(with, 1024, "%s", rest); }

static const char *value(const char *key)
{
    static __thread char found[1024];
    strcpy(found, "\n");
    lines(key, keep, found);
    return *found == '\n' ? NULL : found;
}

static const char *of(int index, const char *what)
{
    char key[128];
    snprintf(key, sizeof key, "%d.%s", index, what);
    return value(key);
}

struct asked { const char *call; int code; };

static void match(const char *rest, void *with)
{
    struct asked *asked = with;
    char call[128] = "";
    int code = -1;
    if (sscanf(rest, "%127s %d", call, &code) >= 1 && (!strcmp(call, "*") || !strcmp(call, asked->call)))
        asked->code = code;
}

/* What the file wants `call` to answer instead of an answer. `error X 0` mends it again. */
static int wrong(Device device, const char *call)
{
    struct asked asked = {call, 0}, hang = {call, 0};
    char key[64];
    lines("hang", match, &hang);
    if (hang.code > 0)
        sleep((unsigned)hang.code);
    if (!ready)
        return UNINITIALISED;
    asked.code = 0;
    lines("missing", match, &asked);
    if (asked.code)
        return FUNCTION_NOT_FOUND;
    lines("error", match, &asked);
    if (device) {
        if (device < &all[0][0] || device > &all[MOST - 1][MOST])
            return INVALID;
        snprintf(key, sizeof key, "%d.error", device->index);
        lines(key, match, &asked);
    }
    return asked.code;
}

#define REFUSE(device) do { int code_ = wrong(device, __func__); if (code_) return code_; } while (0)

static int text(const char *from, char *to, unsigned size)
{
    if (strlen(from) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}

static int number(Device device, const char *what, unsigned *to)
{
    const char *found = of(device->index, what);
    if (!found)
        return NOT_SUPPORTED;
    *to = (unsigned)strtoul(found, NULL, 10);
    return OK;
}

int nvmlInit_v2(void)
{
    const char *code = value("init");
    if (code && atoi(code))
        return atoi(code);
    ready = 1;
    return OK;
}

int nvmlShutdown(void) { ready = 0; return OK; }

int nvmlSystemGetDriverVersion(char *to, unsigned size)
{
    REFUSE(NULL);
    const char *found = value("driver");
    return found ? text(found, to, size) : NOT_SUPPORTED;
}

int nvmlSystemGetCudaDriverVersion_v2(int *to)
{
    REFUSE(NULL);
    const char *found = value("cuda");
    if (!found)
        return NOT_SUPPORTED;
    *to = atoi(found);
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *to)
{
    REFUSE(NULL);
    const char *found = value("count");
    *to = found ? (unsigned)atoi(found) : 0;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *to)
{
    unsigned count = 0;
    int code = nvmlDeviceGetCount_v2(&count);
    if (code)
        return code;
    if (index >= count || index >= MOST)
        return INVALID;
    all[index][MOST].index = (int)index;
    all[index][MOST].part = -1;
    REFUSE(&all[index][MOST]);
    *to = &all[index][MOST];
    return OK;
}

struct part { int wanted, count; char line[1024]; };

static void count_part(const char *rest, void *with)
{
    struct part *part = with;
    if (part->count++ == part->wanted)
        keep(rest, part->line);
}

/* The line of that instance, and how many there are. */
static int part_of(Device device, int wanted, struct part *part)
{
    char key[64];
    memset(part, 0, sizeof *part);
    part->wanted = wanted;
    snprintf(key, sizeof key, "%d.mig", device->index);
    lines(key, count_part, part);
    return part->count;
}

static int is_cut(Device device)
{
    struct part part;
    const char *mode = of(device->index, "mig_mode");
    return part_of(device, -1, &part) > 0 || (mode && atoi(mode));
}

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    REFUSE(device);
    if (!is_cut(device) && !of(device->index, "mig_mode"))
        return NOT_SUPPORTED;
    *current = *pending = (unsigned)is_cut(device);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *to) { REFUSE(device); *to = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *to)
{
    struct part part;
    REFUSE(device);
    if (index >= MOST)
        return INVALID;
    if ((int)index >= part_of(device, (int)index, &part))
        return NOT_FOUND;
    all[device->index][index].index = device->index;
    all[device->index][index].part = (int)index;
    *to = &all[device->index][index];
    return OK;
}

static int mig_fields(Device device, char *uuid, Big *total, Big *used, char *name)
{
    struct part part;
    if (device->part >= part_of(device, device->part, &part))
        return NOT_FOUND;
    *name = 0;
    return sscanf(part.line, "%95s %llu %llu %95[^\n]", uuid, total, used, name) >= 3 ? OK : NOT_FOUND;
}

int nvmlDeviceGetUUID(Device device, char *to, unsigned size)
{
    char uuid[96], name[96];
    Big total, used;
    REFUSE(device);
    if (device->part >= 0)
        return mig_fields(device, uuid, &total, &used, name) ? NOT_FOUND : text(uuid, to, size);
    const char *found = of(device->index, "uuid");
    return found ? text(found, to, size) : NOT_SUPPORTED;
}

int nvmlDeviceGetName(Device device, char *to, unsigned size)
{
    char uuid[96], name[96];
    Big total, used;
    REFUSE(device);
    if (device->part >= 0)
        return mig_fields(device, uuid, &total, &used, name) ? NOT_FOUND : text(name, to, size);
    const char *found = of(device->index, "name");
    return found ? text(found, to, size) : NOT_SUPPORTED;
}

static int memory_of(Device device, Big *total, Big *used)
{
    char uuid[96], name[96];
    if (device->part >= 0)
        return mig_fields(device, uuid, total, used, name);
    const char *found = of(device->index, "memory");
    return found && sscanf(found, "%llu %llu", total, used) == 2 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(Device device, struct memory *to)
{
    REFUSE(device);
    int code = memory_of(device, &to->total, &to->used);
    to->free = to->total - to->used;
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory_v2 *to)
{
    REFUSE(device);
    if (to->version != (sizeof *to | 2 << 24))
        return VERSION_MISMATCH;
    int code = memory_of(device, &to->total, &to->used);
    to->reserved = 0;
    to->free = to->total - to->used;
    return code;
}

int nvmlDeviceGetPciInfo_v3(Device device, struct pci *to)
{
    REFUSE(device);
    const char *found = of(device->index, "pci");
    memset(to, 0, sizeof *to);
    if (!found || sscanf(found, "%x %x %x", &to->domain, &to->bus, &to->device) != 3)
        return NOT_SUPPORTED;
    snprintf(to->bus_id, sizeof to->bus_id, "%08X:%02X:%02X.0", to->domain, to->bus, to->device);
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    REFUSE(device);
    const char *found = of(device->index, "capability");
    return found && sscanf(found, "%d %d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMinorNumber(Device device, unsigned *to) { REFUSE(device); *to = (unsigned)device->index; return OK; }
int nvmlDeviceGetPersistenceMode(Device device, unsigned *to) { REFUSE(device); return number(device, "persistence", to); }
int nvmlDeviceGetPowerUsage(Device device, unsigned *to) { REFUSE(device); return number(device, "power", to); }
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned *to) { (void)sensor; REFUSE(device); return number(device, "temperature", to); }
int nvmlDeviceGetClockInfo(Device device, int kind, unsigned *to) { (void)kind; REFUSE(device); return number(device, "clock", to); }
int nvmlDeviceGetMaxClockInfo(Device device, int kind, unsigned *to) { (void)kind; REFUSE(device); return number(device, "max_clock", to); }
int nvmlDeviceGetAccountingMode(Device device, unsigned *to) { REFUSE(device); return number(device, "accounting", to); }

int nvmlDeviceGetUtilizationRates(Device device, struct rates *to)
{
    REFUSE(device);
    to->memory = 0;
    return number(device, "util", &to->gpu);
}

int nvmlDeviceGetTotalEnergyConsumption(Device device, Big *to)
{
    REFUSE(device);
    const char *found = of(device->index, "energy");
    if (!found)
        return NOT_SUPPORTED;
    *to = strtoull(found, NULL, 10);
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, Big *to)
{
    REFUSE(device);
    const char *found = of(device->index, "slowed");
    *to = found ? strtoull(found, NULL, 10) : 0;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, Big *to)
{
    Big counts[2];
    (void)counter;
    REFUSE(device);
    const char *found = of(device->index, "ecc");
    if (!found || sscanf(found, "%llu %llu", &counts[0], &counts[1]) != 2)
        return NOT_SUPPORTED;
    *to = counts[kind == 1];
    return OK;
}

struct rows { struct process row[LIST]; unsigned count; };

static void add_process(const char *rest, void *with)
{
    struct rows *rows = with;
    unsigned pid;
    long long memory;
    unsigned at = 0;
    if (sscanf(rest, "%u %lld", &pid, &memory) != 2)
        return;
    while (at < rows->count && rows->row[at].pid != pid)
        at++;
    if (at == LIST)
        return;
    rows->row[at].pid = pid;
    rows->row[at].memory = memory < 0 ? ~0ULL : (Big)memory;
    rows->row[at].gpu_instance = rows->row[at].instance = ~0U;
    if (at == rows->count)
        rows->count++;
}

static void drop_process(const char *rest, void *with)
{
    struct rows *rows = with;
    unsigned pid = (unsigned)atoi(rest);
    for (unsigned at = 0; at < rows->count; at++)
        if (rows->row[at].pid == pid)
            rows->row[at--] = rows->row[--rows->count];
}

static int processes(Device device, const char *what, unsigned *count, struct process *to)
{
    struct rows *rows = calloc(1, sizeof *rows);
    char key[64];
    int code = OK;
    snprintf(key, sizeof key, "%d.%s", device->index, what);
    lines(key, add_process, rows);
    snprintf(key, sizeof key, "%d.gone", device->index);
    lines(key, drop_process, rows);
    if (value("reap"))
        for (unsigned at = 0; at < rows->count; at++)
            if (kill((pid_t)rows->row[at].pid, 0) && errno == ESRCH)
                rows->row[at--] = rows->row[--rows->count];
    if (rows->count > (to ? *count : 0))
        code = INSUFFICIENT_SIZE;
    else if (to)
        memcpy(to, rows->row, rows->count * sizeof *to);
    *count = rows->count;
    free(rows);
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, struct process *to)
{
    REFUSE(device);
    return processes(device, "process", count, to);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, struct process *to)
{
    REFUSE(device);
    return processes(device, "graphics", count, to);
}

/* The first shape of the list: what libraries older than 450 have. */
int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned *count, struct old_process *to)
{
    struct process newer[LIST];
    unsigned room = *count;
    REFUSE(device);
    int code = processes(device, "process", &room, to ? newer : NULL);
    if (!code && to) {
        if (room > *count)
            return INSUFFICIENT_SIZE;
        for (unsigned at = 0; at < room; at++) {
            to[at].pid = newer[at].pid;
            to[at].memory = newer[at].memory;
        }
    }
    *count = room;
    return code;
}

struct shares { struct share row[LIST]; unsigned count; Big since; };

static void add_share(const char *rest, void *with)
{
    struct shares *shares = with;
    unsigned pid, sm;
    Big t;
    if (sscanf(rest, "%u %llu %u", &pid, &t, &sm) == 3 && t > shares->since && shares->count < LIST) {
        struct share row = {pid, t, sm, 0, 0, 0};
        shares->row[shares->count++] = row;
    }
}

int nvmlDeviceGetProcessUtilization(Device device, struct share *to, unsigned *count, Big since)
{
    struct shares *shares;
    char key[64];
    int code = OK;
    REFUSE(device);
    if (is_cut(device))
        return NOT_SUPPORTED;
    shares = calloc(1, sizeof *shares);
    shares->since = since;
    snprintf(key, sizeof key, "%d.share", device->index);
    lines(key, add_share, shares);
    if (!shares->count)
        code = NOT_FOUND;
    else if (!to || *count < shares->count)
        code = INSUFFICIENT_SIZE;
    else
        memcpy(to, shares->row, shares->count * sizeof *to);
    *count = shares->count;
    free(shares);
    return code;
}

struct samples { struct sample row[LIST]; unsigned count; Big since; };

static void add_sample(const char *rest, void *with)
{
    struct samples *samples = with;
    unsigned percent;
    Big t;
    if (sscanf(rest, "%llu %u", &t, &percent) == 2 && t > samples->since && samples->count < LIST) {
        struct sample row = {t, percent};
        samples->row[samples->count++] = row;
    }
}

int nvmlDeviceGetSamples(Device device, int kind, Big since, int *value_kind, unsigned *count, struct sample *to)
{
    struct samples *samples;
    char key[64];
    int code = OK;
    REFUSE(device);
    if (kind != 1)
        return NOT_SUPPORTED;
    samples = calloc(1, sizeof *samples);
    samples->since = since;
    snprintf(key, sizeof key, "%d.peak", device->index);
    lines(key, add_sample, samples);
    *value_kind = 1;
    if (!samples->count)
        code = NOT_FOUND;
    else if (to && *count < samples->count)
        code = INSUFFICIENT_SIZE;
    else if (to)
        memcpy(to, samples->row, samples->count * sizeof *to);
    *count = samples->count;
    free(samples);
    return code;
}

struct accounts { unsigned pid; struct account row; int found; };

static void add_account(const char *rest, void *with)
{
    struct accounts *accounts = with;
    unsigned pid, gpu;
    long long peak;
    Big time;
    if (sscanf(rest, "%u %u %lld %llu", &pid, &gpu, &peak, &time) != 4 || pid != accounts->pid)
        return;
    memset(&accounts->row, 0, sizeof accounts->row);
    accounts->row.gpu = gpu;
    accounts->row.peak = peak < 0 ? ~0ULL : (Big)peak;
    accounts->row.time = time;
    accounts->found = 1;
}

int nvmlDeviceGetAccountingStats(Device device, unsigned pid, struct account *to)
{
    struct accounts accounts = {pid, {0}, 0};
    char key[64];
    REFUSE(device);
    snprintf(key, sizeof key, "%d.account", device->index);
    lines(key, add_account, &accounts);
    if (!accounts.found)
        return NOT_FOUND;
    *to = accounts.row;
    return OK;
}
