// Package argocd runs the Lua scripts of config/argocd as Argo CD runs those that its users configure: with the same
// virtual machine, and with no more of Lua's standard library than Argo CD opens (util/lua/lua.go there).
package argocd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	lua "github.com/yuin/gopher-lua"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Health is what Argo CD shows of an object.
type Health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// statuses are those that Argo CD knows; it takes others for Unknown.
var statuses = []string{"Unknown", "Progressing", "Suspended", "Healthy", "Degraded", "Missing"}

// HealthOf runs a health check.
func HealthOf(script string, object map[string]any) (Health, error) {
	result, err := Run(script, object)
	if err != nil {
		return Health{}, fmt.Errorf("run health check: %w", err)
	}
	var health Health
	for key, value := range result {
		text, ok := value.(string)
		switch {
		case key == "status" && ok:
			health.Status = text
		case key == "message" && ok:
			health.Message = text
		default:
			return Health{}, fmt.Errorf("read health: %s is %v", key, value)
		}
	}
	if !slices.Contains(statuses, health.Status) {
		return Health{}, fmt.Errorf("read health: %q is no status of Argo CD", health.Status)
	}
	return health, nil
}

// Run runs a script with an object, as JSON has it, and returns the table that the script returns.
func Run(script string, object map[string]any) (map[string]any, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, library := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(library), Protect: true}, lua.LString(name)); err != nil {
			return nil, fmt.Errorf("open library %q: %w", name, err)
		}
	}
	if err := openSafeOS(state); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang.Guard)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	if state.GetTop() == 0 {
		return nil, errors.New("the script returns nothing")
	}
	table, ok := fromLua(state.Get(-1)).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the script returns a %s, not a table with names", state.Get(-1).Type())
	}
	return table, nil
}

// openSafeOS gives scripts os.time and os.date, which are all that Argo CD leaves of the library.
func openSafeOS(state *lua.LState) error {
	if err := state.CallByParam(lua.P{Fn: state.NewFunction(lua.OpenOs), Protect: true}, lua.LString(lua.OsLibName)); err != nil {
		return fmt.Errorf("open library os: %w", err)
	}
	whole, ok := state.GetGlobal(lua.OsLibName).(*lua.LTable)
	if !ok {
		return errors.New("open library os: it is no table")
	}
	safe := state.NewTable()
	for _, name := range []string{"time", "date"} {
		safe.RawSetString(name, whole.RawGetString(name))
	}
	state.SetGlobal(lua.OsLibName, safe)
	loaded, ok := state.GetField(state.Get(lua.RegistryIndex), "_LOADED").(*lua.LTable)
	if !ok {
		return errors.New("open library os: there are no loaded modules")
	}
	loaded.RawSetString(lua.OsLibName, safe)
	return nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case nil:
		return lua.LNil
	case bool:
		return lua.LBool(value)
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case int64:
		return lua.LNumber(value)
	case []any:
		list := state.NewTable()
		for _, item := range value {
			list.Append(toLua(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for _, key := range slices.Sorted(maps.Keys(value)) {
			table.RawSetString(key, toLua(state, value[key]))
		}
		return table
	default:
		panic(fmt.Sprintf("%T is not what JSON is decoded to", value))
	}
}

// fromLua makes JSON's values of Lua's. An empty table, which is an empty list as well, becomes nil: Argo CD gives
// it the kind that it had in the object.
func fromLua(value lua.LValue) any {
	switch value := value.(type) {
	case lua.LBool:
		return bool(value)
	case lua.LNumber:
		return float64(value)
	case lua.LString:
		return string(value)
	case *lua.LTable:
		var list []any
		table := map[string]any{}
		value.ForEach(func(key, item lua.LValue) {
			if name, ok := key.(lua.LString); ok {
				table[string(name)] = fromLua(item)
			} else {
				list = append(list, fromLua(item))
			}
		})
		switch {
		case len(table) > 0:
			return table
		case len(list) > 0:
			return list
		}
	}
	return nil
}
