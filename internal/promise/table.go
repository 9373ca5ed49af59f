package promise

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// endToEnd is the suite that asserts promises on a cluster.
const endToEnd = "test/e2e"

// row is a promise as the documentation shows it.
type row struct {
	promise, value string
	asserted       []string // each is endToEnd, or a package and its test: "internal/x: TestY"
}

func rows() []row {
	return []row{
		{"image present, one server at a time: `kubectl apply` → Ready and Verified", atMost(Ready), []string{endToEnd}},
		{"server broken → Ready is False, and the status names the cause", atMost(Broken), []string{endToEnd}},
		{"the server's process dies during a call → the client has a JSON-RPC error", atMost(Death), []string{"internal/sidecar/server/child: TestDeathIsToldInTime", endToEnd}},
		{"one session runs out of memory", "cgroup v1: " + OutOfMemoryV1 + "; cgroup v2: " + OutOfMemoryV2, []string{endToEnd}},
		{"`auth`, `access` or `audit` changed → enforced in running pods, none restarted", atMost(Access), []string{endToEnd}},
		{"the same → sent to each pod that the operator reaches", atMost(AccessPushed), []string{"internal/prober: TestDocumentsAreSentAtOnce"}},
		{"a pod of several comes, becomes ready, is deleted or is gone → the list of pods is sent to each pod that the operator reaches, at most four times a second", atMost(ListPushed), []string{"internal/prober: TestListsAreSentAtOnce"}},
		{"`replicas` lowered → the operator deletes pods, those that clients miss least", atMost(ScaleDown), []string{"internal/controller: TestScaleDownInSteps"}},
		{"issuer signs with a new key → pods accept its tokens", atMost(NewKey), []string{
			"internal/prober: TestUnknownKeyIsToldInTime", "internal/issuer: TestNewKeyIsFetchedAtOnce", "test/integration/controller: TestNewKeyCountsInTime",
		}},
		{"issuer withdraws a key → sent to pods", atMost(WithdrawnKey), []string{"internal/issuer: TestWithdrawnKeyGoesInTime"}},
		{"issuer cannot be reached, and its last keys stay → an Event says so", "after " + words(StaleKeys), []string{"internal/controller: TestStaleKeysAreToldOnce"}},
		{"allowed hosts, allowed origins or verbosity changed → in effect in running pods, none restarted", atMost(Settings), []string{endToEnd}},
		{"leader lost → reconciling again", atMost(Failover), []string{endToEnd}},
		{"nothing changes → no write to the API server", "watched for " + words(Rest), []string{"test/integration/controller: TestLongAtRestNothingIsWritten", endToEnd}},
		{"operator upgraded → pods of MCPServers restarted", count(UpgradeRestarts), []string{"test/integration/controller: TestUpgradeRestartsNothing", endToEnd}},
	}
}

// Table is all promises, in Markdown.
func Table() string {
	var table strings.Builder
	table.WriteString("| promise | value | asserted by |\n|---|---|---|\n")
	for _, r := range rows() {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", r.promise, r.value, strings.Join(r.asserted, "; "))
	}
	return table.String()
}

func atMost(d time.Duration) string { return "at most " + words(d) }

// words is a duration as people write it, in the largest unit that needs no fraction.
func words(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}, {time.Millisecond, "millisecond"}} {
		switch {
		case d == unit.size:
			return "1 " + unit.name
		case d > 0 && d%unit.size == 0:
			return fmt.Sprintf("%d %ss", d/unit.size, unit.name)
		}
	}
	return d.String()
}

func count(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}
