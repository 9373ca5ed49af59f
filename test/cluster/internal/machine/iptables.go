package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// families are the two packet filters by the names of their programs.
var families = []string{"iptables", "ip6tables"}

// Chain is a chain of the packet filter.
type Chain struct{ Family, Table, Name string }

func (c Chain) String() string { return c.Family + " " + c.Table + " " + c.Name }

// clusterChain tells whether Kubernetes or a CNI plugin makes chains of that name.
func clusterChain(name string) bool {
	return strings.HasPrefix(name, "KUBE-") || strings.HasPrefix(name, "CNI-")
}

// ruleset is what iptables-save prints, by table.
type ruleset map[string]*table

type table struct {
	chains []string
	rules  []string
}

func parseRules(saved string) ruleset {
	rules := ruleset{}
	var current *table
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			current = &table{}
			rules[line[1:]] = current
		case current == nil:
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			current.chains = append(current.chains, name)
		case strings.HasPrefix(line, "-A "):
			current.rules = append(current.rules, line)
		}
	}
	return rules
}

// cleanupScript is the input for `iptables-restore --noflush` that takes the
// cluster's chains, and the jumps to them, out of the rules, and nothing else.
func cleanupScript(rules ruleset) string {
	var script strings.Builder
	for _, name := range sortedKeys(rules) {
		var flush, jumps, remove strings.Builder
		for _, chain := range rules[name].chains {
			if clusterChain(chain) {
				// To declare a chain that exists is to flush it.
				fmt.Fprintf(&flush, ":%s - [0:0]\n", chain)
				fmt.Fprintf(&remove, "-X %s\n", chain)
			}
		}
		for _, rule := range rules[name].rules {
			fields := strings.Fields(rule)
			target := slices.Index(fields, "-j")
			if !clusterChain(fields[1]) && target >= 0 && target+1 < len(fields) && clusterChain(fields[target+1]) {
				fmt.Fprintf(&jumps, "-D %s\n", strings.TrimPrefix(rule, "-A "))
			}
		}
		if flush.Len() > 0 {
			fmt.Fprintf(&script, "*%s\n%s%s%sCOMMIT\n", name, &flush, &jumps, &remove)
		}
	}
	return script.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// ClusterChains lists the chains that Kubernetes or CNI plugins have made.
func ClusterChains(ctx context.Context) ([]Chain, error) {
	var chains []Chain
	for _, family := range families {
		rules, err := save(ctx, family)
		if err != nil {
			return nil, err
		}
		for _, name := range sortedKeys(rules) {
			for _, chain := range rules[name].chains {
				if clusterChain(chain) {
					chains = append(chains, Chain{family, name, chain})
				}
			}
		}
	}
	return chains, nil
}

// Tables lists the tables that exist, by family.
func Tables(ctx context.Context) (map[string][]string, error) {
	tables := map[string][]string{}
	for _, family := range families {
		rules, err := save(ctx, family)
		if err != nil {
			return nil, err
		}
		tables[family] = sortedKeys(rules)
	}
	return tables, nil
}

// RemoveClusterChains removes the chains that ClusterChains lists, and what is
// left of tables that are not among those that were there before.
func RemoveClusterChains(ctx context.Context, before map[string][]string) error {
	for _, family := range families {
		rules, err := save(ctx, family)
		if err != nil {
			return err
		}
		if script := cleanupScript(rules); script != "" {
			restore := exec.CommandContext(ctx, family+"-restore", "--wait=5", "--noflush")
			restore.Stdin = strings.NewReader(script)
			if output, err := restore.CombinedOutput(); err != nil {
				return fmt.Errorf("remove chains with %s-restore: %w: %s", family, err, bytes.TrimSpace(output))
			}
		}
		if err := deleteEmptyTables(ctx, family, before[family]); err != nil {
			return err
		}
	}
	return nil
}

// deleteEmptyTables deletes the built-in chains, which appeared with the first
// rule, of tables that were not there before and that no other program uses by now.
// iptables-nft can do that, though not delete the table itself; the older
// iptables ignores it. Neither has an effect on packets.
func deleteEmptyTables(ctx context.Context, family string, before []string) error {
	rules, err := save(ctx, family)
	if err != nil {
		return err
	}
	for name, table := range rules {
		if slices.Contains(before, name) || !table.empty() {
			continue
		}
		if output, err := exec.CommandContext(ctx, family, "--wait=5", "--table="+name, "--delete-chain").CombinedOutput(); err != nil {
			return fmt.Errorf("delete chains of table %s with %s: %w: %s", name, family, err, bytes.TrimSpace(output))
		}
	}
	return nil
}

// empty tells whether the table has nothing but built-in chains without rules.
func (t *table) empty() bool {
	return len(t.rules) == 0 && !slices.ContainsFunc(t.chains, func(chain string) bool {
		return !slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain)
	})
}

func save(ctx context.Context, family string) (ruleset, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, family+"-save")
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list rules with %s-save: %w: %s", family, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return parseRules(string(output)), nil
}
