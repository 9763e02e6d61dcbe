// The search: all words have to be in a page. A page comes first if they are in its title, then if they are in a heading,
// then the more often they are in its text. The index is loaded when the search is used for the first time.
'use strict'

const root = new URL('.', document.currentScript.src)
const input = document.getElementById('query')
const list = document.getElementById('found')
let index = null
let chosen = -1

function load() {
  if (index !== null) return
  index = []
  const s = document.createElement('script')
  s.src = new URL('search-index.js', root)
  s.onload = () => { index = window.plinthSearchIndex; show() }
  document.head.append(s)
}

const count = (text, word) => text.split(word).length - 1

function find(query) {
  const words = query.toLowerCase().split(/\s+/).filter(w => w)
  if (!words.length) return []
  const found = []
  for (const page of index) {
    const title = page.title.toLowerCase()
    const text = page.text.toLowerCase()
    if (!words.every(w => title.includes(w) || text.includes(w))) continue
    const heading = page.headings.find(h => words.every(w => h.title.toLowerCase().includes(w)))
    let score = heading ? 50 : 0
    for (const w of words) score += (title.includes(w) ? 100 : 0) + Math.min(count(text, w), 20)
    found.push({ page, heading, score, words })
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 12)
}

function snippet(text, words) {
  const lower = text.toLowerCase()
  const at = Math.max(0, lower.indexOf(words.find(w => lower.includes(w)) ?? ''))
  const from = Math.max(0, at - 50)
  return (from ? '…' : '') + text.slice(from, at + 110).replace(/\s+/g, ' ').trim() + '…'
}

function show() {
  const found = find(input.value)
  list.replaceChildren(...found.map(({ page, heading, words }, i) => {
    const item = document.createElement('li')
    item.id = 'found-' + i
    item.role = 'option'
    const link = document.createElement('a')
    link.href = new URL(page.path, root) + (heading ? '#' + heading.id : '')
    link.tabIndex = -1
    const name = document.createElement('b')
    name.textContent = page.title + (heading && heading.title !== page.title ? ' › ' + heading.title : '')
    const text = document.createElement('span')
    text.textContent = snippet(page.text, words)
    link.append(name, text)
    item.append(link)
    return item
  }))
  if (!found.length && input.value.trim() && index.length) {
    const none = document.createElement('li')
    none.textContent = 'Nothing was found.'
    list.append(none)
  }
  choose(-1)
  list.hidden = !list.children.length
  input.setAttribute('aria-expanded', String(!list.hidden))
}

function choose(i) {
  const links = list.querySelectorAll('a')
  chosen = links.length ? Math.max(-1, Math.min(i, links.length - 1)) : -1
  links.forEach((link, at) => link.parentElement.setAttribute('aria-selected', String(at === chosen)))
  if (chosen < 0) input.removeAttribute('aria-activedescendant')
  else {
    input.setAttribute('aria-activedescendant', 'found-' + chosen)
    links[chosen].scrollIntoView({ block: 'nearest' })
  }
}

function hide() {
  list.hidden = true
  input.setAttribute('aria-expanded', 'false')
}

input.addEventListener('focus', load)
input.addEventListener('input', () => { load(); show() })
input.addEventListener('keydown', e => {
  if (e.key === 'ArrowDown') choose(chosen + 1)
  else if (e.key === 'ArrowUp') choose(chosen - 1)
  else if (e.key === 'Enter') list.querySelectorAll('a')[Math.max(chosen, 0)]?.click()
  else if (e.key === 'Escape') { hide(); input.blur() }
  else return
  e.preventDefault()
})
list.addEventListener('click', hide)
document.addEventListener('click', e => { if (!e.target.closest('.search')) hide() })
document.addEventListener('keydown', e => {
  if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) {
    e.preventDefault()
    input.focus()
  }
})

// On a narrow screen the menu is closed at first.
if (matchMedia('(max-width: 52rem)').matches) document.getElementById('menu').open = false
