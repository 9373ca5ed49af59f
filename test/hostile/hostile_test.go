//go:build hostile

// Package hostile attacks the adapter while well-behaved clients use it. The adapter stays
// below its memory limit, and the others lose no call and hardly any time.
package hostile

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/bench/procfs"
	"github.com/slipway-mcp/slipway/bench/stats"
	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/servers"
)

const (
	memoryLimit = 256 << 20
	// slack is what an attack may add to twice the latency that calls have without it.
	slack = time.Millisecond
	// mayBeStolen is how many CPUs the hypervisor may give to other machines in a round that
	// counts. It pauses a CPU for milliseconds, so a few pauses in two seconds decide the p99.
	mayBeStolen = 0.02
	// maxTries is how many rounds there are at most for each that counts.
	maxTries = 6
)

var (
	rounds = flag.Int("rounds", 5, "times that each attack is made; the median counts")
	times  = flag.Bool("times", true, "fail if calls take too long; on a machine that others use, that says nothing")
)

// attack is one way to harm the adapter.
type attack struct {
	name string
	// run goes on until the attacker is told to stop, and longer if it has not made size of
	// what it makes by then.
	run  func(*attacker) error
	size int
	// makes says what size counts.
	makes string
	flags []string // of the adapter
	// counters are metrics of the adapter that say what became of the attack, by what they
	// mean. Each of them counts something.
	counters map[string]string
	// refuses says that some of what is made has to be answered 503.
	refuses bool
}

var attacks = []attack{
	// Not an attack: if this one exceeds the bound, the machine is too busy to tell.
	{name: "no attack, but a busy CPU", run: spin, makes: "attacks"},
	{
		name: "200 half-sent bodies of 32 MiB", run: sendBodies, size: halfSent, makes: "bodies", refuses: true,
	},
	{
		name: "1e6 server requests that no client answers", run: floodRequests, size: floodSize, makes: "requests of the server",
		counters: map[string]string{"requests refused": "slipway_adapter_refused_server_requests_total"},
	},
	{
		name: "1e6 events to a reader that does not read", run: floodEvents, size: floodSize, makes: "events",
		counters: map[string]string{"events dropped": "slipway_adapter_dropped_notifications_total"},
	},
	{
		name: "10,000 silent connections", run: openSilent, size: silentConnections, makes: "connections",
		counters: map[string]string{"connections evicted": "slipway_adapter_evicted_connections_total"},
	},
	{
		name: "1,000 made-up bearer tokens", run: makeUpTokens, size: madeUpTokens, makes: "tokens", refuses: true,
		flags:    []string{"--stateless-clients=Translate"},
		counters: map[string]string{"sessions refused": "slipway_adapter_refused_sessions_total"},
	},
}

// The programs, as TestMain has built them.
var adapterProgram, echoServer string

// The attackers are this program, too.
func TestMain(m *testing.M) {
	if name := os.Getenv(attackVariable); name != "" {
		os.Exit(attackByName(name))
	}
	os.Exit(servers.Run(m, map[string]*string{"cmd/sidecar": &adapterProgram, "test/servers/echo": &echoServer}))
}

func TestHostile(t *testing.T) {
	table := []string{"| attack | quiet p99 | attacked p99 | bound | peak RSS | what the attacker got |", "|---|---|---|---|---|---|"}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { table = append(table, a.row(t)) })
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// row attacks an adapter in several rounds, and returns the result as a row of the table.
func (a *attack) row(t *testing.T) string {
	process := adapter.Run(t, adapterProgram, append(a.flags, fmt.Sprintf("--memory-limit=%d", memoryLimit), "--", echoServer)...)
	before, err := procfs.ReadProcess(process.PID)
	if err != nil {
		t.Fatal(err)
	}
	users := welcome(t, process)
	var quiet, attacked []float64
	total := report{Got: map[string]int{}}
	for tries := 0; len(attacked) < *rounds; tries++ {
		if tries == maxTries**rounds {
			t.Fatalf("the hypervisor takes CPUs away: of %d rounds, %d count", tries, len(attacked))
		}
		users.await(t)
		before := users.measure(t, "quiet")
		attacker := a.begin(t, users.address)
		during := users.measure(t, "attacked")
		got := attacker.end(t)
		a.check(t, got)
		total.add(got)
		t.Logf("the attacker made %d %s, and got %v", got.Made, a.makes, got.Got)
		if *times && max(before.stolen, during.stolen) > mayBeStolen {
			t.Log("the round does not count: the hypervisor took CPUs away")
			continue
		}
		quiet, attacked = append(quiet, float64(before.p99)), append(attacked, float64(during.p99))
	}
	users.leave(t)
	if after, err := procfs.ReadProcess(process.PID); err != nil || after.Started != before.Started || after.Zombie {
		t.Errorf("the adapter is not the process that it was: %+v, before %+v, error %v", after, before, err)
	}
	peak, err := procfs.PeakMemory(process.PID)
	if err != nil {
		t.Fatal(err)
	}
	if peak >= memoryLimit {
		t.Errorf("the adapter had %s at its peak; its limit is %s", inMiB(peak), inMiB(memoryLimit))
	}
	usual, slowed := stats.Median(quiet), stats.Median(attacked)
	bound := 2*usual + float64(slack)
	if *times && slowed > bound {
		t.Errorf("beside the attack, the p99 of calls is %s; without it %s, so it may be %s", inMillis(slowed), inMillis(usual), inMillis(bound))
	}
	for meaning, metric := range a.counters {
		count := users.metric(t, metric)
		if count == 0 {
			t.Errorf("the adapter's metric %s counts nothing", metric)
		}
		total.Got[meaning] += count
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", a.name, inMillis(usual), inMillis(slowed), inMillis(bound), inMiB(peak), total.describe(a.makes))
}

// check says whether an attacker did what it was to do, and was refused as it should be.
func (a *attack) check(t *testing.T, got report) {
	t.Helper()
	if got.Made < a.size {
		t.Errorf("the attacker made %d %s, want at least %d", got.Made, a.makes, a.size)
	}
	if a.refuses && got.Got[refused] == 0 {
		t.Errorf("the attacker was never refused: %v", got.Got)
	}
	for _, wrong := range got.Wrong {
		t.Errorf("the attacker saw what it should not: %s", wrong)
	}
}

func inMillis(nanos float64) string { return fmt.Sprintf("%.2f ms", nanos/1e6) }

func inMiB(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
