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
		{"Start: from `kubectl apply` to Ready and Verified, with the images on the node, one server at a time", atMost(Ready), []string{endToEnd}},
		{"Failure: from the moment a server breaks until Ready is False and the status names the cause", atMost(Broken), []string{endToEnd}},
		{"Crash: from the death of the server's process until each call in flight gets a JSON-RPC error", atMost(Death), []string{"internal/sidecar/server/child: TestDeathIsToldInTime", endToEnd}},
		{"Out of memory: what ends when one session uses up the memory limit", "cgroup v1: " + OutOfMemoryV1 + "; cgroup v2: " + OutOfMemoryV2, []string{endToEnd}},
		{"Access rules: from a change of `auth`, `access` or `audit` until running pods enforce it, without a restart", atMost(Access), []string{endToEnd}},
		{"Access rules: from the change until the manager has sent it to each pod that it can reach", atMost(AccessPushed), []string{"internal/prober: TestDocumentsAreSentAtOnce"}},
		{"List of pods: from a change (a pod is added, ready, deleted or gone) until the manager has sent the new list to each pod that it can reach. The manager sends it at most four times a second", atMost(ListPushed), []string{"internal/prober: TestListsAreSentAtOnce"}},
		{"Scale-down: from a lower `replicas` until the manager starts to delete pods", atMost(ScaleDown), []string{"internal/controller: TestScaleDownInSteps"}},
		{"New issuer key: from the first token that the issuer signs with it until pods accept the token", atMost(NewKey), []string{
			"internal/prober: TestUnknownKeyIsToldInTime", "internal/issuer: TestNewKeyIsFetchedAtOnce", "test/integration/controller: TestNewKeyCountsInTime",
		}},
		{"Withdrawn issuer key: from the withdrawal until the manager has sent the change to pods", atMost(WithdrawnKey), []string{"internal/issuer: TestWithdrawnKeyGoesInTime"}},
		{"Unreachable issuer: pods keep its last keys, and an Event warns you", "after " + words(StaleKeys), []string{"internal/controller: TestStaleKeysAreToldOnce"}},
		{"Live settings: from a change of allowed hosts, allowed origins or verbosity until it takes effect in running pods, without a restart", atMost(Settings), []string{endToEnd}},
		{"Failover: from the loss of the leading manager until another manager reconciles", atMost(Failover), []string{endToEnd}},
		{"At rest: writes to the API server while nothing changes", "none; tests watch for " + words(Rest), []string{"test/integration/controller: TestLongAtRestNothingIsWritten", endToEnd}},
		{"Upgrade of Slipway: pods of MCPServers that restart", count(UpgradeRestarts), []string{"test/integration/controller: TestUpgradeRestartsNothing", endToEnd}},
	}
}

// Table is all promises, in Markdown.
func Table() string {
	var table strings.Builder
	table.WriteString("| guarantee | value | tested by |\n|---|---|---|\n")
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
