/** The words of the pages in English: the catalogue that names every key. `{name}` is replaced by a value. */
export const en = {
  // What is paid
  payTo: "Pay {merchant}",
  payment: "Payment",
  onNetwork: "{symbol} on {network}",
  exactly: "In your wallet: {amount} {symbol}",
  payBefore: "Pay before {time}",
  showMore: "Show more",
  showLess: "Show less",
  testMode: "Test mode. This is not real money.",

  // The ways to pay
  waysToPay: "Ways to pay",
  wayWallet: "Wallet",
  wayPhone: "Phone",
  wayManual: "By hand",
  payWith: "Pay with {wallet}",
  testWallet: "the test wallet",
  testWalletHint: "A practice wallet with test money. One click pays.",
  noFee: "No network fee: you sign, and we send the payment.",
  youPayFee: "Your wallet sends it and pays the network fee.",
  useTransfer: "Send a normal transfer instead",
  useSignature: "Pay without a network fee instead",
  noWallet: "No wallet was found in this browser.",
  noWalletHint: "Pay from your phone, or by hand from any wallet or exchange.",
  yourWallet: "Paying from {address}",

  // A phone
  scanPage: "Scan to open this page on your phone, then pay with a wallet there.",
  scanWallet: "Scan with a wallet app. It fills in the amount and the address.",
  scanAddress: "Scan for the address only. Enter the amount yourself.",
  qrOf: "What the code contains",
  qrPage: "This page",
  qrRequest: "Payment",
  qrAddress: "Address",
  qrLabel: "QR code",
  tokenWarning: "Check that your wallet shows {symbol}. Some wallets ignore the token and would send {native}.",
  openWallet: "Open in a wallet app",

  // By hand
  manualIntro: "Send this from any wallet or exchange. We detect it automatically.",
  network: "Network",
  tokenContract: "Token contract",
  address: "Address",
  amount: "Amount",
  copy: "Copy",
  copied: "Copied",
  copyOf: "Copy: {what}",
  manualWarning:
    "Send only {symbol} on {network}, and exactly this amount after your exchange's fee. Anything else may be lost or delayed.",
  haveHash: "I have sent it",
  hashLabel: "Transaction hash",
  hashHint: "Optional: it helps us find your payment sooner.",
  hashSubmit: "Find my payment",
  hashInvalid: "A transaction hash is 0x and 64 letters and digits.",

  // Fields
  yourDetails: "Your details",
  fieldRequired: "Please fill this in.",
  fieldEmail: "Please enter an e-mail address, such as name@example.com.",
  fieldLong: "Please use at most 500 characters.",
  continue: "Continue",

  // In the wallet
  connecting: "Connecting to your wallet…",
  confirmInWallet: "Confirm in your wallet",
  confirmSign: "Sign the request for {amount} {symbol}. Signing costs nothing.",
  confirmSend: "Approve the transfer of {amount} {symbol}.",
  cancel: "Cancel",
  rejected: "You declined in your wallet. Nothing was sent. You can try again.",
  walletBusy: "Your wallet already has a request open. Open it to continue.",
  walletFailed: "Your wallet reported a problem: {problem}",
  wrongNetwork: "Your wallet is on another network. This payment is on {network}.",
  switchNetwork: "Switch to {network}",
  lowToken: "You have {balance} {symbol}. You need {missing} {symbol} more.",
  lowGas: "You have no {native} for the network fee. You need a little {native} on {network}, or pay without a fee.",
  lowGasOnly: "You have no {native} for the network fee. You need a little {native} on {network}.",
  faucet: "Get test money",
  tryAgain: "Try again",
  chooseOther: "Choose another way",
  maybeSent: "You started a payment in your wallet. If you confirmed it there, wait: it appears here. Don't pay again.",
  notSent: "I did not confirm it",

  // On its way
  sent: "Payment sent",
  sentWords: "Don't pay again. We are waiting for the network to show it.",
  confirming: "Confirming your payment",
  confirmingWords: "It has arrived. Don't pay again. This takes a few moments.",
  confirmations: "{done} of {needed} confirmations",
  canClose: "You may close this page. Your payment continues.",
  notShowing: "It does not appear?",
  startOver: "Pay another way",
  partTitle: "Part of the payment has arrived",
  partWords: "{received} {symbol} has arrived. Please send the remaining {missing} {symbol}.",
  partWaiting: "{arriving} {symbol} is being confirmed. Please send the remaining {missing} {symbol}.",

  // The end
  paid: "Payment complete",
  paidWords: "{merchant} has received your payment.",
  overpaidWords:
    "You sent {received} {symbol}, more than the {amount} {symbol} asked for. {merchant} can return the difference.",
  duplicateWords: "It was paid more than once. {merchant} can return the extra payment.",
  backTo: "Back to {merchant}",
  redirecting: "You are taken back in {seconds} seconds.",
  stay: "Stay here",
  viewTransaction: "View the transaction",
  transaction: "Transaction",
  paidAmount: "Amount paid",
  paidTo: "Paid to",
  expired: "This payment has expired",
  expiredWords:
    "The time to pay is over, and nothing was received. Go back to {merchant} and start again. If you have just sent the money, don't send it again: it appears here when it arrives.",
  expiredPart: "{received} of {amount} {symbol} arrived before the time was over. {merchant} can accept or return it.",
  askMerchant: "Write to {merchant}, and give the address of this page.",
  late: "Your payment arrived too late",
  lateWords: "It arrived after the time was over. {merchant} can accept or return it. Don't pay again.",
  wrongToken: "Another token arrived",
  wrongTokenWords: "Something other than {symbol} arrived at this address. {merchant} can accept or return it.",
  wrongTokenPay: "Something other than {symbol} arrived. It does not count. {merchant} can return it.",
  failed: "This payment did not go through",
  failedWords: "None of the transactions that were submitted paid this. Go back to {merchant} and start again.",
  usedUp: "This link was used up by another payment while yours was on its way. {merchant} can accept or return yours.",
  unknown: "We can't see the network right now",
  outdated: "This page is not up to date",
  unknownWords:
    "Please don't pay yet. If you have paid, your payment is safe and appears here as soon as the network answers.",
  paused: "Payments are paused",
  pausedWords: "Please don't send money now. What was sent earlier is still found and counted.",

  // A payment that is reserved first
  reserveTerms:
    "You sign a reservation. {merchant} can take up to {amount} {symbol} until {time}. What it does not take comes back to your wallet.",
  reserveAtOnce: "You sign once. The money is reserved, then sent to {merchant} at once.",
  reserveNoWallet: "Open this page in a browser or an app that has a wallet. This payment can't be sent to an address.",
  reserveNoScript:
    "This payment needs JavaScript and a wallet in your browser, because you sign a reservation. It can't be sent to an address.",
  reserving: "Reserving your payment",
  reservingWords: "You have signed. Don't sign again. This takes a few moments.",
  reserved: "Reserved until {time}",
  reservedWords:
    "{merchant} can take up to {amount} {symbol} until then. What it does not take comes back to your wallet.",
  reservedAtOnce: "Your payment is reserved",
  reservedAtOnceWords: "It is being sent to {merchant}. Don't pay again.",
  reservedClose: "You may close this page. Open it again to see what was paid.",
  takenPart: "{merchant} took {paid} of {amount} {symbol}. The rest is reserved until {time}.",
  takenRest: "{merchant} took {paid} of {amount} {symbol}. The rest went back to your wallet.",
  releasing: "Waiting to be released",
  releasingWords:
    "The time to take it is over. {left} {symbol} comes back to your wallet by itself. If it is not there by {time}, open this page again: it shows how to take it back yourself.",
  takeBack: "You can take your money back",
  takeBackWords:
    "{left} {symbol} could not be released in time. Take it back yourself: send a transaction from the wallet that paid to the escrow contract, with the data below and no amount. It costs a small network fee. We keep trying, too.",
  takenReleasing: "{merchant} took {paid} of {amount} {symbol}. The rest comes back to your wallet by itself.",
  takenTakeBack:
    "{merchant} took {paid} of {amount} {symbol}. {left} {symbol} could not be released in time. Take it back yourself: send a transaction from the wallet that paid to the escrow contract, with the data below and no amount.",
  escrowContract: "Escrow contract",
  transactionData: "Transaction data",
  released: "Your reservation was released",
  releasedWords: "{merchant} took nothing. {released} {symbol} went back to your wallet.",
  refunded: "Your payment was refunded",
  refundedWords: "{refunded} {symbol} went back to your wallet.",
  refundedPart: "{refunded} {symbol} was refunded to your wallet.",
  reserveExpired: "The time to pay is over. Nothing was taken from your wallet. Go back to {merchant} and start again.",
  reserveFailedWords: "Nothing was taken from your wallet. Go back to {merchant} and start again.",
  reservePaused: "Nothing can be reserved right now. Nothing was taken from your wallet. Please try again later.",
  reserveAgain: "The reservation did not go through. Nothing was taken from your wallet. You can try again.",
  amountReserved: "Reserved",
  amountLeft: "Still reserved",
  amountReleased: "Released",
  amountRefunded: "Refunded",
  reservedUntil: "Reserved until",

  // Problems beside the way to pay
  hashReverted: "That transaction failed on the network. No money moved. Please try again.",
  hashNoTransfer: "That transaction sent no {symbol}.",
  hashWrongRecipient: "That transaction paid another address.",
  hashWrongAsset: "That transaction sent another token.",
  hashUsed: "That transaction has already paid for something else.",
  hashNotFound: "That transaction was not found on {network}. Check the hash and the network.",
  relayUnavailable: "Payment without a fee is not possible right now. Send a normal transfer instead.",
  signatureRefused: "Your signature could not be used: {problem}",
  sanctioned: "Payments from this wallet can't be accepted.",
  busy: "There were too many requests from your network. Wait a minute, then try again.",
  offline: "The server can't be reached. We keep trying.",
  busyUntil:
    "There were too many requests from your network. This page asks again at {time}. Please don't pay before that.",
  somethingWrong: "Something went wrong: {problem}",

  // A payment link
  linkAmount: "Amount in {symbol}",
  linkAmountInvalid: "Enter an amount such as 5 or 4.99.",
  linkEnded: "This link is not available",
  linkEndedWords: "It has ended or was used up. Ask {merchant} for a new one.",

  // A paywall
  unlockWords: "Pay once to unlock it.",
  accessForever: "Access without an end",
  accessUntil: "Access until {time}",
  alreadyPaid: "I have paid already",
  ownWallet:
    "Pay from a wallet of your own. Access belongs to the address that pays; an exchange's address can't open it.",
  proveWords: "Sign with the wallet that paid. Signing costs nothing.",
  unlocked: "Unlocked",
  unlockedWords: "{address} has access.",
  openContent: "Open the content",
  noAccess: "This wallet has no access. Pay with it, or choose the wallet that paid.",
  notForSale: "Not for sale now",
  notForSaleWords: "{merchant} does not sell this at the moment. Whoever has paid can still open it.",

  // A receipt
  receipt: "Receipt",
  viewReceipt: "View the receipt",
  paidOn: "Date",
  receiptNumber: "Receipt number",
  reversed: "This payment was reversed",
  reversedWords: "The network removed it. If it comes back, it counts again.",
  returned: "This payment was sent back",
  print: "Print",

  // A return
  askReturn: "Say where to send it back",
  returnTitle: "Get your money back",
  returnWords:
    "{amount} {symbol} waits for {merchant} to decide. Say where it is to be sent back. Only the wallet that paid can do this.",
  returnAddress: "Send it back to",
  returnSign: "Sign with {wallet}",
  returnSaved: "Saved",
  returnSavedWords: "If {merchant} returns the money, it goes to {address}.",
  returnWrongWallet: "Sign with the wallet that paid: {address}.",
  returnExchange: "Paid from an exchange? It can't sign. Ask {merchant}.",
  returnNothing: "Nothing waits to be sent back",
  returnNothingWords: "This payment was completed, accepted or sent back already.",
  addressInvalid: "Enter an address: 0x and 40 letters and digits.",

  // The foot of a page
  verifyAddress: "Check this address",
  language: "Language",
  noScript:
    "This page works without JavaScript: send the payment by hand, then reload this page to see whether it arrived.",

  // No page
  notFound: "This page does not exist",
  notFoundWords: "Check the address of the page, or ask the shop for a new link.",
  serverFailed: "This page can't be shown right now",
  serverFailedWords: "Please try again in a moment. Nothing was charged.",
} as const

/** A catalogue: a language that misses a key does not compile. */
export type Catalogue = Record<keyof typeof en, string>
