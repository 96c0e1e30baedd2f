-- Whether a text is UTF-8, which clients need of names. Nearly every name is ASCII.
local function is_text(value)
  if not string.find(value, '[\128-\255]') then return true end
  local wide = {
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
  }
  for _, each in ipairs(wide) do value = string.gsub(value, each, '.') end
  return not string.find(value, '[\128-\255]')
end
