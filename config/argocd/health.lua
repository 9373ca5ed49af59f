-- The health of an MCPServer, from the conditions that docs/mcpserver.md describes.
local hs = {status = "Progressing", message = "Waiting for the manager to see the MCPServer"}

-- What the status says about an earlier generation of the spec decides nothing.
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(name, status)
  return conditions[name] ~= nil and conditions[name].status == status
end

local function health(status, name)
  hs.status = status
  hs.message = conditions[name].message
  return hs
end

-- A person has to change something, also if the pods of an earlier spec still serve.
if is("Stalled", "True") then
  return health("Degraded", "Stalled")
end
if is("Reconciling", "True") then
  return health("Progressing", "Reconciling")
end
-- A server that was stopped, and has no pods any more, has no condition Ready.
if conditions["Ready"] == nil and conditions["Available"] ~= nil then
  local reason = conditions["Available"].reason
  if reason == "Suspended" or reason == "ScaledToZero" then
    return health("Suspended", "Available")
  end
end
if is("Ready", "True") then
  return health("Healthy", "Ready")
end
if conditions["Ready"] ~= nil then
  return health("Progressing", "Ready")
end
return hs
