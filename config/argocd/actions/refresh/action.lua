-- The manager resolves the image, renders the pods and verifies them again when this annotation changes.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["mcp.slipway.dev/refresh"] = os.date("!%Y-%m-%dT%XZ")
return obj
